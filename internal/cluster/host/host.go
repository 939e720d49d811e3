// Package host identifies this process to other processes on the same machine, so that one of them
// can prove that this process is gone.
//
// A false proof is dangerous: it fences a live process. So IsGone reports true only because of
// facts that the kernel has stated about exactly that process. A missing file in /proc proves
// nothing, because mount options such as hidepid=2 hide the processes of other users.
package host

import (
	"errors"
	"os"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Self describes this process under a node id.
func Self(id model.NodeID, version string) store.NodeInfo {
	here := system()
	n := store.NodeInfo{ID: id, Host: here.name, PID: os.Getpid(), Version: version, BootID: here.boot, Namespace: here.namespace}
	if p, err := here.stat(n.PID); err == nil {
		// Without PIDStart, other nodes cannot prove that this process is gone, and wait until its
		// lease expires.
		n.PIDStart = p.start
	}
	return n
}

// IsGone reports whether a process is provably gone. In doubt it reports false.
func IsGone(n store.NodeInfo) bool { return system().isGone(n) }

// facts is what the machine says about itself and its processes.
type facts struct {
	name      string // the name of the machine
	boot      string // an id that changes with every boot; empty if the machine has none
	namespace string // where process ids and start times are valid; empty if unknown
	// stat reads the state of a process.
	stat func(pid int) (process, error)
	// probe sends the null signal to a process.
	probe func(pid int) error
}

// process is a process as /proc shows it.
type process struct {
	start   int64 // the start time, in clock ticks since boot
	state   byte
	threads int
}

// hasEnded reports whether a process has ended and waits for its parent. A process whose first
// thread has ended while other threads run looks the same, except for the number of threads.
func (p process) hasEnded() bool { return (p.state == 'Z' || p.state == 'X') && p.threads <= 1 }

// errNoProcess is the error of probe when no process has the id.
var errNoProcess = errors.New("no such process")

// isGone reports whether a process is provably gone:
//
//   - Nothing is known about a process of another machine, another boot or another namespace, so
//     isGone reports false. It also compares the names of the machines, because clones of one
//     running machine share the boot id.
//   - If the entry in /proc can be read, the process is gone if the entry has another start time,
//     because the id was reused, or if the process in the entry has ended.
//   - If the entry is missing, the process is gone if the kernel also says that no process has the
//     id. Any other answer means that the entry is hidden.
func (f *facts) isGone(n store.NodeInfo) bool {
	switch {
	case n.BootID == "" || n.Namespace == "" || n.PID <= 0 || n.PIDStart == 0:
		return false
	case n.BootID != f.boot || n.Host != f.name || n.Namespace != f.namespace:
		return false
	}

	p, err := f.stat(n.PID)
	switch {
	case err == nil:
		return p.start != n.PIDStart || p.hasEnded()
	case errors.Is(err, os.ErrNotExist):
		return errors.Is(f.probe(n.PID), errNoProcess)
	default:
		return false
	}
}
