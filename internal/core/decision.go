package core

import (
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Limits bound what one run may hold. The core refuses a message that would exceed a limit, with an
// error that names the limit.
type Limits struct {
	Events  int64 // events in the history of one run
	Signals int   // signals of one name that the code has not taken; also updates without an answer
	// Bytes bounds the history of one run. Unread bounds the signals, updates and promises that its
	// code has not read. Zero means no bound.
	Bytes, Unread int
	// Timers, Tasks and Locks bound the open timers and open tasks of one run, and the locks of one
	// section.
	Timers int
	Tasks  int
	Locks  int
	// Past and PastBytes bound the events that a run may begin with. The store writes and reads
	// them together with the start of the run.
	Past, PastBytes int
}

// DefaultLimits are large enough for real workflows and small enough to stop a program that runs
// away.
var DefaultLimits = Limits{Events: 100_000, Bytes: 50 << 20, Signals: 10_000, Unread: 16 << 20, Timers: 10_000, Tasks: 10_000, Locks: model.MaxLocks, Past: 10_000, PastBytes: 16 << 20}

// Decision is the result of applying an input. The caller writes all of it in one commit. Answers,
// messages and hand-overs leave only after that commit.
type Decision struct {
	// The commit appends Events to the run that received the input.
	Events []model.Event
	// Close is the outcome of the run Closed. Closed is usually the run that received the input. If
	// the input imports the past of a run that has already ended, Closed is the new run in Start.
	Close  *model.Outcome
	Closed model.RunID
	// Start begins a new run of the address. Replaces is the run that is no longer the current one.
	Start    *model.Start
	Replaces model.RunID
	// Deletes are closed runs of the address that the commit removes.
	Deletes []model.RunID
	// StartTimers and StopTimers change timers of the run. StopAll removes all of them.
	StartTimers []Timer
	StopTimers  []string
	StopAll     bool
	// Messages are sent to other addresses.
	Messages []model.Message
	// Mark replaces the stored mark of the run. When the run continues as new, Mark is the mark of
	// the next run.
	Mark *Mark
	// Retry is a step whose back-off is over: the worker runs it again.
	Retry string
	// Begins says that the start time of the run has arrived, so its code may run.
	Begins bool
	// Diverged says that the worker ran ahead of events that it had not seen. The core has applied
	// only the facts at the beginning of the turn (I9).
	Diverged bool
	// Answer goes to the sender of the input. Pending says that there is no answer yet: the code
	// gives it later, as a Reply.
	Answer  model.Answer
	Pending bool
	// Misused says that the request id of the input belongs to another request. The caller must not
	// remember this refusal under the id, because the id keeps the answer of the other request.
	Misused bool
	// Replies are answers that clients wait for. The caller remembers them under the ids of their
	// requests.
	Replies []Reply
	// Dead are tasks that have failed permanently.
	Dead []DeadTask
	// DeadTask changes the row of a dead task.
	DeadTask *DeadTaskChange
	// Entity changes the row of an entity. Taken are items of its mailbox that are done; Mailbox
	// are new items.
	Entity  *EntityChange
	Taken   []int64
	Mailbox []model.MailboxItem
	// KeepsRefused says that the caller keeps refused calls as dead letters, in the same commit.
	KeepsRefused bool
	// Erased removes the row of the entity together with its whole mailbox, readable or not.
	Erased bool
	// If this decision grants a lock to a section, Granted is the time at which the section began
	// to wait for the lock. Otherwise it is zero.
	Granted model.Time

	stopped []Timer // the timers that StopTimers names
}

// Reply answers a request of a client. It has the answer of the code, or a failure if the code will
// never answer.
type Reply struct {
	RequestID string
	Answer    model.Answer
	For       *model.Use
}

// Mark is what the store keeps about an open run outside its history.
type Mark struct {
	Parked  bool
	Waits   []model.Reason
	Blocked *model.Reason
}

// HasWrites reports whether the decision changes anything in the store.
func (d *Decision) HasWrites() bool {
	return len(d.Events) > 0 || d.Close != nil || d.Start != nil || len(d.Deletes) > 0 || len(d.StartTimers) > 0 || len(d.StopTimers) > 0 ||
		d.StopAll || len(d.Messages) > 0 || d.Mark != nil || len(d.Replies) > 0 || d.DeadTask != nil ||
		d.Entity != nil || len(d.Taken) > 0 || len(d.Mailbox) > 0 || d.KeepsRefused || d.Erased
}

// refuse turns the answer into a refusal. The decision must not have written anything yet (I10).
func (d *Decision) refuse(k fault.Kind, text string) {
	d.Answer.Failure = &model.Failure{Kind: k.String(), Message: text}
}

// Refusal returns the refusal as an error; nil when the input took effect.
func (d *Decision) Refusal() error { return RefusalOf(d.Answer) }

// RefusalOf returns the refusal in an answer as an error of its kind, or nil.
func RefusalOf(a model.Answer) error {
	if a.Failure == nil {
		return nil
	}
	return fault.New(fault.ParseKind(a.Failure.Kind), "%s", a.Failure.Message)
}

// append adds an event to the run and to the decision. A parked run wakes up, unless Withheld gives
// a reason to leave it parked.
func (x *Execution) append(d *Decision, now model.Time, e model.Event) {
	e.Seq, e.At = x.Next, max(now, x.Last)
	x.note(&e)
	x.Next, x.Last = e.Seq+1, e.At
	d.Events = append(d.Events, e)
	if x.Parked && x.Withheld() == nil {
		x.Parked = false
		d.Mark = x.mark()
	}
}

// mark returns what the store should keep about the run now.
func (x *Execution) mark() *Mark {
	m := &Mark{Parked: x.Parked, Blocked: x.Blocked}
	if why := x.Withheld(); why != nil {
		m.Waits = []model.Reason{*why}
	}
	return m
}

// startTimer opens a timer. If the same decision has stopped that timer before, the timer is kept
// with its old due time, so that neither change reaches the store.
func (x *Execution) startTimer(d *Decision, t Timer) {
	if i := slices.IndexFunc(d.stopped, func(s Timer) bool { return s.ID == t.ID }); i >= 0 {
		t = d.stopped[i]
		d.stopped = slices.Delete(d.stopped, i, i+1)
		d.StopTimers = slices.DeleteFunc(d.StopTimers, func(id string) bool { return id == t.ID })
		x.timers = append(x.timers, t)
		return
	}
	x.timers = append(x.timers, t)
	d.StartTimers = append(d.StartTimers, t)
}

// stopTimer stops the timer if it is open. If the same decision has started it, neither change
// reaches the store.
func (x *Execution) stopTimer(d *Decision, id string) {
	i := x.timer(id)
	if i < 0 {
		return
	}
	t := x.timers[i]
	x.timers = slices.Delete(x.timers, i, i+1)
	if j := slices.IndexFunc(d.StartTimers, func(s Timer) bool { return s.ID == id }); j >= 0 {
		d.StartTimers = slices.Delete(d.StartTimers, j, j+1)
		return
	}
	d.stopped = append(d.stopped, t)
	d.StopTimers = append(d.StopTimers, id)
}
