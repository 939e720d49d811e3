package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/pgtest"
)

// If the database of a server does not answer yet, the server waits for the database and logs that
// it waits. It gives up after a while.
func TestServeWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	key := writeFile(t, t.TempDir(), "key", serveKey)
	server := pgtest.Start(t, pgtest.Options{Fsync: true})
	file := writeFile(t, t.TempDir(), "perdure.toml", "store = '"+server.NewDatabase(t)+"'")
	if err := server.Stop(pgtest.Fast); err != nil {
		t.Fatal(err)
	}
	args := []string{"serve", "--log-format", "json", "--config", file, "--listen", "127.0.0.1:0", "--admin-key-file", key}

	log := &lines{news: make(chan struct{}, 1)}
	if code := Main(t.Context(), append(args, "--store-wait", "1s"), Streams{In: strings.NewReader(""), Out: io.Discard, Err: log}); code != 5 || !strings.Contains(log.String(), "has not answered within") || !strings.Contains(log.String(), "--store-wait") {
		t.Errorf("exit %d: %s", code, log)
	}

	// Use no deadline, because the store itself would try until the deadline.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	log, code := &lines{news: make(chan struct{}, 1)}, make(chan int, 1)
	go func() {
		code <- Main(ctx, append(args, "--store-wait", "100s"), Streams{In: strings.NewReader(""), Out: io.Discard, Err: log})
	}()
	until := func(text string) {
		t.Helper()
		for !strings.Contains(log.String(), text) {
			select {
			case <-log.news:
			case end := <-code:
				t.Fatalf("perdure serve ended with exit code %d:\n%s", end, log)
			}
		}
	}
	until("the database does not answer; the server tries again")
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(`"msg":"serving"`)
	stop()
	if end := <-code; end != 0 {
		t.Errorf("perdure serve ended with exit code %d:\n%s", end, log)
	}
}

// A server tries its store for as long as --store-wait says. The last attempt begins when that time
// ends.
func TestServerWaitsForAsLongAsItMay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		waited, pause time.Duration
		again         bool
	}{
		{0, storePause, true},
		{27500 * time.Millisecond, storePause, true},
		{29 * time.Second, storePause, true},
		{29600 * time.Millisecond, 400 * time.Millisecond, true},
		{30 * time.Second, 0, false},
		{33 * time.Second, 0, false},
	} {
		if pause, again := pauseBeforeStart(c.waited, 30*time.Second); again != c.again || again && pause != c.pause {
			t.Errorf("after %s of 30s the server waits for %s, %t", c.waited, pause, again)
		}
	}
}

// The exit code of a server that does not start says whether another start may succeed.
func TestExitCodeOfAServerThatDoesNotStart(t *testing.T) {
	t.Parallel()
	for kind, want := range map[fault.Kind]int{
		fault.Unavailable: 5, fault.Timeout: 5, fault.Exhausted: 5, fault.Canceled: 130, fault.Internal: 1,
		fault.Invalid: exitRefused, fault.Conflict: exitRefused, fault.Denied: exitRefused, fault.NotFound: exitRefused, fault.Corrupt: exitRefused,
	} {
		err := errors.Join(refuseStart(fault.New(kind, "the server does not start")), nil)
		if code := exitCode(err); code != want || !fault.Is(err, kind) {
			t.Errorf("%s: exit code %d, want %d", kind, code, want)
		}
	}
	if err := refuseStart(nil); err != nil {
		t.Error(err)
	}
}
