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
	// Begun says that the code has run before. Events may not show that, for example if the code
	// only waits or has started timers.
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
	// Pinned are the names in Workflows whose runs are pinned to a version: only workers with the
	// version that began a run continue it.
	Pinned  []string
	Version string
	// Slots is how many runs the worker works on at a time; 0 for any number. See api.Worker.
	Slots int
	// BuiltIn says that the worker runs the code of batch jobs, which act with the rights of their
	// callers. Only a worker in the process of the engine can set it: it is never sent over the
	// network.
	BuiltIn bool
	// Previews says that the worker may get events before they are committed; see engine.Previewer.
	// Only a worker in the process of the engine can set it: it is never sent over the network.
	Previews bool
	// Held are the runs that the worker still holds. It got them from an owner that has lost the
	// connection to the worker.
	Held []HeldRun
	// Remote names the membership of a remote worker. Only the server of the worker can set it: it
	// is never sent over the network.
	Remote RemoteMember
}

// RemoteMember names the membership of a remote worker in one role: see RemoteMemberName. It is
// zero for a worker that runs in the process of its node.
type RemoteMember struct {
	Name string
	// After are the names of the memberships that the worker had before, at this server or other
	// servers. The offer lists what the worker still holds from these memberships.
	After []string
}

// HeldRun is a run that a worker holds.
type HeldRun struct {
	Address Address
	Run     RunID
	// Given is when the owner handed the run over to the worker, by the clock of the owner
	// (Activation.Now). It is zero if the worker does not say.
	Given Time
}

// TaskWorker executes tasks. The engine calls it, directly or through a server between the engine
// and the worker. No method may block.
type TaskWorker interface {
	// Execute hands over claims that are all committed, never more at a time than the worker has
	// slots for.
	Execute(claims []Claim)
	// Stop tells the worker to stop a claim, and why.
	Stop(claim ClaimRef, why StopReason)
	// Settle tells the worker that the engine has stored a report, or why it ignores the report.
	// The error is of kind NotOwned when the worker no longer has the claim, for example because
	// another worker has it or because the run has ended. If the worker reports twice, the engine
	// calls Settle twice, and the report takes effect once.
	Settle(claim ClaimRef, err error)
}

// StopReason says why the engine tells a worker to stop a claim.
type StopReason uint8

// Reasons to stop.
const (
	// StopCanceled says that the task was cancelled. Its code may clean up, and the engine applies
	// the report of the worker.
	StopCanceled StopReason = iota + 1
	// StopLost says that the claim timed out, that another worker has it, or that its run has
	// ended. The engine ignores the report of the worker. If the worker offers TellsEnd, it tells
	// its session when the code of the claim has ended.
	StopLost
)

// remoteMark separates the name that a remote worker gives itself from its identity.
const remoteMark = "~"

// RemoteWorkerName returns the name of a worker that is connected to a server. Histories have this
// name, followed by the node. The worker draws the id at random and keeps it as long as its process
// lives. The next owner of a claim recognizes the worker by the id. Workers of two tenants never
// have the same name.
func RemoteWorkerName(name, tenant, id string) string {
	sum := sha256.Sum256([]byte(tenant + "\x00" + id))
	return strings.ReplaceAll(name, "@", "-") + remoteMark + hex.EncodeToString(sum[:8])
}

// RemoteMemberName returns the name of the membership of a remote worker in a role. The name is a
// hash that depends on the id, which only the worker and its servers know. So a worker can name
// only its own memberships.
func RemoteMemberName(tenant, id, session, role string) string {
	sum := sha256.Sum256([]byte(tenant + "\x00" + id + "\x00" + session + "\x00" + role))
	return hex.EncodeToString(sum[:16])
}

// IsRemoteWorker reports whether RemoteWorkerName has made a name.
func IsRemoteWorker(name string) bool { return strings.Contains(name, remoteMark) }

// SpeaksFor reports whether a worker may speak for a claim. A remote worker tells the engine which
// claims it has, so the engine checks that the history names this worker. In the history, the name
// of the worker is followed by its node. An empty name means that a node speaks for its own
// workers, whose claims it knows.
func SpeaksFor(by, named string) bool {
	if i := strings.LastIndexByte(named, '@'); i >= 0 {
		named = named[:i]
	}
	return by == "" || by == named
}
