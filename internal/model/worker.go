package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Activation is a run handed to a worker.
type Activation struct {
	// Start is shared with the owner of the run. Neither the owner nor the worker changes it.
	Start      *Start
	Generation uint64
	// Events are the events after the start, including carried ones: positions 1, 2, …
	Events []Event
	// Now is the owner's clock.
	Now Time
	// Begun says that the code has run before, although Events may not show it: it waits, or it has
	// timers.
	Begun bool
	// Limits are the limits of the history.
	Limits HistoryLimits
}

// HistoryLimits bound the history of a run; 0 is no bound.
type HistoryLimits struct {
	Events int64
	Bytes  int
}

// Query is a question to the code of a run.
type Query struct {
	ID    uint64
	Name  string
	Input Payload
}

// Offer says which workflows a worker can run.
type Offer struct {
	Name      string // for operators
	Tenant    string // tenant of the runs
	Workflows []string
	// Pinned are the Workflows whose runs only workers of the version that began them continue.
	Pinned  []string
	Version string
	// Slots is how many runs the worker works on at a time; 0 for any number. See api.Worker.
	Slots int
	// BuiltIn says that the worker runs the code of batch jobs, which act with the rights of their
	// callers. Only a worker in the process of the engine can set it: it is never sent over the
	// network.
	BuiltIn bool
	// Held are the runs that the worker holds from an owner that has lost the connection to it.
	Held []HeldRun
	// Remote names the membership of a remote worker. Only the server of the worker can set it: it
	// is never sent over the network.
	Remote RemoteMember
}

// RemoteMember names the membership of a remote worker in one role: see RemoteMemberName. A worker
// that ends with its node has the zero value.
type RemoteMember struct {
	Name string
	// After is the name of the membership that the worker had before, at this server or another
	// one; empty without one. The offer lists what the worker still holds from that membership.
	After string
}

// HeldRun is a run that a worker holds.
type HeldRun struct {
	Address Address
	Run     RunID
}

// TaskWorker executes tasks. The engine calls it, directly or through a server between the engine
// and the worker. No method may block.
type TaskWorker interface {
	// Execute hands over claims that are all committed, never more at a time than the worker has
	// slots for.
	Execute(claims []Claim)
	// Stop tells the worker that the engine no longer waits for the outcome of a claim.
	Stop(claim ClaimRef, why StopReason)
	// Settle tells the worker that the engine has stored a report, or why it ignores the report:
	// NotOwned when another worker has the claim. If the worker reports twice, Settle is called
	// twice, and the report takes effect once.
	Settle(claim ClaimRef, err error)
}

// StopReason says why the engine no longer waits for a claim.
type StopReason uint8

// Reasons to stop.
const (
	// StopCanceled is a task that was cancelled. It may clean up, and its report counts.
	StopCanceled StopReason = iota + 1
	// StopLost is a claim that timed out, that another worker has, or whose run has ended. The
	// engine ignores its report.
	StopLost
)

// remoteMark separates the name that a remote worker gives itself from its identity.
const remoteMark = "~"

// RemoteWorkerName returns the name of a worker that is connected to a server, as histories have
// it. The worker draws the id, and keeps it as long as its process lives: the next owner of a claim
// recognizes the worker by it. Two tenants never have the same name.
func RemoteWorkerName(name, tenant, id string) string {
	sum := sha256.Sum256([]byte(tenant + "\x00" + id))
	return strings.ReplaceAll(name, "@", "-") + remoteMark + hex.EncodeToString(sum[:8])
}

// RemoteMemberName returns the name of the membership of a remote worker in a role. It is a hash,
// so that a worker can name only its own memberships: it depends on the id, which only the worker
// and its servers know.
func RemoteMemberName(tenant, id, session, role string) string {
	sum := sha256.Sum256([]byte(tenant + "\x00" + id + "\x00" + session + "\x00" + role))
	return hex.EncodeToString(sum[:16])
}

// IsRemoteWorker reports whether a name is one of RemoteWorkerName.
func IsRemoteWorker(name string) bool { return strings.Contains(name, remoteMark) }

// SpeaksFor reports whether a worker may speak for a claim. A remote worker tells the engine which
// claims it has, so the engine checks that the history names this worker. The history appends the
// node of the worker to the name. An empty name stands for a node, which knows the claims of its
// own workers.
func SpeaksFor(by, named string) bool {
	if i := strings.LastIndexByte(named, '@'); i >= 0 {
		named = named[:i]
	}
	return by == "" || by == named
}
