package cli

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal opens a pseudo-terminal with the given number of columns.
func openTerminal(t *testing.T, columns uint16) *os.File {
	t.Helper()
	_, tty := openTerminalPair(t, columns)
	return tty
}

// openTerminalPair is like openTerminal, but also returns the person's side of the terminal. What
// the test writes there is typed input, and what it reads there is shown on the screen.
func openTerminalPair(t *testing.T, columns uint16) (person, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	t.Cleanup(func() { _ = master.Close() }) // the test has read what it needs
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}

	number, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = tty.Close() })
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return master, tty
}

// A terminal has the width that it reports, or $COLUMNS, or 80. A pipe has no width, even if
// $COLUMNS is set.
func TestWidth(t *testing.T) {
	t.Setenv("COLUMNS", "")
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()

	wide, silent := openTerminal(t, 132), openTerminal(t, 0)
	for _, c := range []struct {
		file    *os.File
		columns string
		want    int
	}{
		{wide, "", 132}, {wide, "100", 132}, {silent, "", 80}, {silent, "100", 100}, {silent, "many", 80}, {out, "", 0}, {out, "100", 0},
	} {
		t.Setenv("COLUMNS", c.columns)
		if got := widthOf(c.file); got != c.want {
			t.Errorf("%s with $COLUMNS %q: %d columns, want %d", c.file.Name(), c.columns, got, c.want)
		}
	}
}
