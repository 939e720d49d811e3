package cli

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// echoes reports whether a terminal shows what a person types.
func echoes(t *testing.T, tty *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// typeHidden runs login on a terminal, waits until the terminal shows nothing, and then calls do.
// It returns what the command prints, and its exit code.
func typeHidden(t *testing.T, tty *os.File, do func(cancel context.CancelFunc)) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	code := make(chan int, 1)
	go func() { code <- Main(ctx, []string{"login", "prod"}, Streams{In: tty, Out: &out, Err: &out}) }()

	for echoes(t, tty) {
		select {
		case n := <-code:
			t.Fatalf("login ended with exit code %d: %s", n, &out)
		case <-time.After(time.Millisecond): // until the command reads
		}
	}
	do(cancel)
	n := <-code
	return out.String(), n
}

// On a terminal login asks for the key, and the terminal does not show it. An interrupted login
// leaves the terminal as it was.
func TestLoginOnATerminal(t *testing.T) { //nolint:paralleltest // it sets the environment
	w := newLoginWorld(t)
	defer w.s.end()
	w.run("", "", 0, "config", "set", "prod", "--server", "grpc://"+w.s.address)

	person, tty := openTerminalPair(t, 80)
	_, code := typeHidden(t, tty, func(context.CancelFunc) {
		if _, err := person.WriteString(serveKey + "\n"); err != nil {
			t.Fatal(err)
		}
	})
	if code != 0 || w.keyOf("prod.key") != serveKey {
		t.Errorf("exit %d, and the stored key is %q", code, w.keyOf("prod.key"))
	}
	if !echoes(t, tty) {
		t.Error("the terminal shows nothing after login")
	}
	if n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCINQ); err != nil || n > 0 {
		seen := make([]byte, max(n, 1))
		if n > 0 {
			_, err = person.Read(seen)
		}
		if err != nil || strings.Contains(string(seen), serveKey[:4]) {
			t.Errorf("the terminal shows %q, %v", seen, err)
		}
	}

	_, tty = openTerminalPair(t, 80)
	if _, code := typeHidden(t, tty, func(cancel context.CancelFunc) { cancel() }); code != 130 {
		t.Errorf("an interrupted login: exit %d", code)
	}
	if !echoes(t, tty) {
		t.Error("the terminal shows nothing after an interrupted login")
	}
}
