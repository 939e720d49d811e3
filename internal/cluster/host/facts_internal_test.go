package host

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/perdure/perdure/internal/store"
)

func TestGoneNeedsAProof(t *testing.T) {
	t.Parallel()
	const pid, start = 4711, 1000
	known := store.NodeInfo{Host: "web-1", BootID: "boot", Namespace: "pid:[1] time:[1]", PID: pid, PIDStart: start}
	running := process{start: start, state: 'S', threads: 8}
	missing := &fs.PathError{Op: "open", Path: "/proc/4711/stat", Err: syscall.ENOENT}
	for _, c := range []struct {
		name   string
		change func(n *store.NodeInfo)
		stat   process
		err    error // the error of reading stat
		probe  error
		want   bool
	}{
		{name: "it runs", stat: running, want: false},
		{name: "its id is free", err: missing, probe: errNoProcess, want: true},

		// With hidepid=2 or ProtectProc=invisible, the entry of a process of another user is
		// missing.
		{name: "hidden, of another user", err: missing, probe: syscall.EPERM, want: false},
		{name: "hidden, of the same user", err: missing, probe: nil, want: false},
		{name: "hidden, and signals are filtered", err: missing, probe: syscall.EACCES, want: false},
		{name: "hidden, and there are no signals", err: missing, probe: syscall.ENOSYS, want: false},

		// With hidepid=1 or some security modules, the entry is there but cannot be read.
		{name: "unreadable", err: &fs.PathError{Err: syscall.EACCES}, probe: errNoProcess, want: false},
		{name: "ended while it was read", err: &fs.PathError{Err: syscall.ESRCH}, probe: nil, want: false},
		{name: "not understood", err: fmt.Errorf("3 fields"), probe: errNoProcess, want: false},

		{name: "its id was given to another process", stat: process{start: start + 1, state: 'R', threads: 1}, want: true},
		{name: "a zombie", stat: process{start: start, state: 'Z', threads: 1}, probe: nil, want: true},
		{name: "dead", stat: process{start: start, state: 'X', threads: 0}, want: true},
		{name: "its first thread has ended, others go on", stat: process{start: start, state: 'Z', threads: 3}, want: false},
		{name: "stopped", stat: process{start: start, state: 'T', threads: 8}, want: false},

		{name: "another boot", change: func(n *store.NodeInfo) { n.BootID = "other" }, err: missing, probe: errNoProcess},
		{name: "a clone of this machine", change: func(n *store.NodeInfo) { n.Host = "web-2" }, err: missing, probe: errNoProcess},
		{name: "another namespace", change: func(n *store.NodeInfo) { n.Namespace = "pid:[2] time:[1]" }, err: missing, probe: errNoProcess},
		{name: "shifted start times", change: func(n *store.NodeInfo) { n.Namespace = "pid:[1] time:[2]" }, stat: process{start: 5, state: 'S'}},
		{name: "no boot id", change: func(n *store.NodeInfo) { n.BootID = "" }, err: missing, probe: errNoProcess},
		{name: "no namespace", change: func(n *store.NodeInfo) { n.Namespace = "" }, err: missing, probe: errNoProcess},
		{name: "no start time", change: func(n *store.NodeInfo) { n.PIDStart = 0 }, err: missing, probe: errNoProcess},
		{name: "no id", change: func(n *store.NodeInfo) { n.PID = 0 }, err: missing, probe: errNoProcess},
		{name: "an id that means a group", change: func(n *store.NodeInfo) { n.PID = -1 }, err: missing, probe: errNoProcess},
	} {
		n := known
		if c.change != nil {
			c.change(&n)
		}
		f := facts{
			name: "web-1", boot: "boot", namespace: "pid:[1] time:[1]",
			stat:  func(int) (process, error) { return c.stat, c.err },
			probe: func(int) error { return c.probe },
		}
		if got := f.isGone(n); got != c.want {
			t.Errorf("%s: gone is %v, want %v", c.name, got, c.want)
		}
	}

	// A machine without any facts about itself proves nothing.
	nothing := facts{stat: func(int) (process, error) { return process{}, missing }, probe: func(int) error { return errNoProcess }}
	for _, n := range []store.NodeInfo{known, {PID: pid, PIDStart: start}} {
		if nothing.isGone(n) {
			t.Errorf("%+v is gone by a machine without /proc", n)
		}
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	const tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 9 0 123456 21 22"
	for _, text := range []string{"7 (sh)" + tail, "7 (a (b) c)" + tail, "7 () Z 1)" + tail} {
		p, err := parseStat(text)
		if want := (process{start: 123456, state: 'S', threads: 9}); p != want || err != nil {
			t.Errorf("%q: %+v, %v, want %+v", text, p, err, want)
		}
	}
	for _, text := range []string{"", "7", "7 (sh) S 1 2 3", "7 (sh) SS 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 9 0 1", "7 (sh) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 x 0 1"} {
		if p, err := parseStat(text); err == nil {
			t.Errorf("%q: %+v", text, p)
		}
	}
}
