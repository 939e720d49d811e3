package core

import (
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Limits bound what one run may hold. A limit that is reached refuses with a sentence that names
// it.
type Limits struct {
	Events  int64 // of one run
	Signals int   // received and not taken
	// Bytes bounds the history of one run, Unread the signals, updates and promises that its code
	// has not dealt with; no bound when it is 0.
	Bytes, Unread int
	Timers        int
	Tasks         int // open ones
	Locks         int // of one section
	// Past and PastBytes bound the events that a run may begin with: they are stored and read
	// together with its start.
	Past, PastBytes int
}

// DefaultLimits are generous for people and finite for accidents.
var DefaultLimits = Limits{Events: 100_000, Bytes: 50 << 20, Signals: 10_000, Unread: 16 << 20, Timers: 10_000, Tasks: 10_000, Locks: model.MaxLocks, Past: 10_000, PastBytes: 16 << 20}

// Decision is what an input leads to. Everything to be written belongs to one commit; the answer
// and whatever else is told to anybody must wait for it.
type Decision struct {
	// Events are appended to the run that the input was applied to.
	Events []model.Event
	// Close ends the run Closed: that one, or the one that Start begins.
	Close  *model.Outcome
	Closed model.RunID
	// Start begins a new run of the address; Replaces is the run that stops being current.
	Start    *model.Start
	Replaces model.RunID
	// Deletes are closed runs of the address that are removed.
	Deletes []model.RunID
	// StartTimers and StopTimers change timers of the run; StopAll removes all of them.
	StartTimers []Timer
	StopTimers  []string
	StopAll     bool
	// Messages leave for other addresses.
	Messages []model.Message
	// Mark changes the stored mark of the run; when it continues as new, that of the next one.
	Mark *Mark
	// Retry is a step whose back-off is over: the worker is to run it again.
	Retry string
	// Begins tells that the start time of the run has come: its code is to run.
	Begins bool
	// Diverged tells that the worker ran ahead of news: the rest of its turn was dropped.
	Diverged bool
	// Answer goes to whoever sent the input. Pending tells that there is none yet: the code gives
	// it, and it comes as a reply.
	Answer  model.Answer
	Pending bool
	// Misused tells that the request id of the input belongs to another request: the refusal must
	// not be remembered in the place of that one's answer.
	Misused bool
	// Replies are answers that clients have waited for. They are remembered under the ids of their
	// requests.
	Replies []Reply
	// Dead are tasks that failed for good.
	Dead []DeadTask
	// Letter changes a dead letter.
	Letter *LetterChange
	// Entity changes the row of an entity; Taken are items of its mailbox that are dealt with,
	// Mailbox are new ones.
	Entity  *EntityChange
	Taken   []int64
	Mailbox []model.MailboxItem
	// Erased removes the row of the entity with everything that waits for it, whatever is in them.
	Erased bool
	// Granted is since when the section has waited that the decision gives the lock of the entity
	// to; zero when it gives it to none.
	Granted model.Time

	stopped []Timer // what StopTimers names
}

// Reply is the answer to a request of a client that the code has given, or will never give.
type Reply struct {
	RequestID string
	Answer    model.Answer
	For       *model.Use
}

// Mark is what is stored about an open run outside of its history.
type Mark struct {
	Parked  bool
	Waits   []model.Reason
	Blocked *model.Reason
}

// Writes reports whether the decision changes anything durable.
func (d *Decision) Writes() bool {
	return len(d.Events) > 0 || d.Close != nil || d.Start != nil || len(d.Deletes) > 0 || len(d.StartTimers) > 0 || len(d.StopTimers) > 0 ||
		d.StopAll || len(d.Messages) > 0 || d.Mark != nil || len(d.Replies) > 0 || d.Letter != nil ||
		d.Entity != nil || len(d.Taken) > 0 || len(d.Mailbox) > 0 || d.Erased
}

// refuse makes the answer a refusal (I10: nothing was written before).
func (d *Decision) refuse(k fault.Kind, text string) {
	d.Answer.Failure = &model.Failure{Kind: k.String(), Message: text}
}

// Refused is the refusal as an error; nil when the input took effect.
func (d *Decision) Refused() error { return RefusalOf(d.Answer) }

// RefusalOf is the refusal in an answer as an error with its kind; nil when there is none.
func RefusalOf(a model.Answer) error {
	if a.Failure == nil {
		return nil
	}
	return fault.New(fault.ParseKind(a.Failure.Kind), "%s", a.Failure.Message)
}

// append adds an event to the run and to the decision.
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

// mark is what is to be stored about the run now.
func (x *Execution) mark() *Mark {
	m := &Mark{Parked: x.Parked, Blocked: x.Blocked}
	if why := x.Withheld(); why != nil {
		m.Waits = []model.Reason{*why}
	}
	return m
}

// startTimer opens a timer. One that was stopped earlier in the same decision is simply kept.
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

// stopTimer stops the timer if it is open. One that was started in the same decision leaves no
// trace.
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
