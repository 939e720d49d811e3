package lane

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// farewells is how many more attempts a lane makes when its node stops and the store takes
// nothing. The pauses between them add up to a bit more than half a second.
const farewells = 5

// unstoredNames is how many addresses the error of a lane names when it gives up.
const unstoredNames = 5

// ErrStoreAway ends a lane whose store accepted nothing while the node stopped.
var ErrStoreAway = errors.New("the store accepts no commits while the node stops")

// ErrStopping says that a brief call has not begun, and that no worker will begin it before the
// server has stopped.
var ErrStopping = fault.New(fault.Unavailable, "the server stops, and no worker has begun the call: it can be made again, at another server")

// Forwarded is the interface of tokens of callers of other nodes. Such a caller can wait until the
// shard moves, and then asks the next owner.
type Forwarded interface {
	// IsForwarded marks the token.
	IsForwarded()
}

// Hurry tells the lane that its node is about to stop. If the store accepts nothing, for example
// because its disk is full, the lane makes a few more attempts, starting now. After them the lane
// ends, because waiting for the store would only delay the end of the process. Nothing acknowledged
// is lost. Waiting callers get an error, and the next owner repeats the steps and tasks whose
// outcomes are not stored. The workers of a server leave after this call; see Leave.
func (l *Lane) Hurry() {
	if l.hurried || l.dead != nil {
		return
	}
	l.hurried = true
	for _, e := range l.sortedEntries((*entry).isEntity) {
		l.refuseStuck(l.now, e)
	}
	if r := &l.recovery; r.stage == stageResend || r.stage == stageRefence {
		r.at = 0
	}
}

// refuseStuck refuses the brief calls of an entity that no worker can begin because the server
// stops. The shard moves only after the server has answered its callers. So these callers would
// wait for the shard, and the server would wait for them. The clients of all other calls that wait
// for code make their calls again on another server.
func (l *Lane) refuseStuck(now model.Time, e *entry) {
	a := e.actor
	if !l.outlive() || a.entity == nil || !l.isStuck(e) {
		return
	}

	refused := false
	for _, it := range slices.Clone(a.entity.Mail()) {
		_, forwarded := it.Tag.(Forwarded)
		if !forwarded && it.Tag != nil && it.Once() && a.entity.Forget(it.Tag, "") {
			l.answer(Answer{Token: it.Tag, Err: ErrStopping})
			refused = true
		}
	}
	if refused {
		l.settleEntity(now, e) // a section may have waited behind the calls
		l.handOutCalls(now, e) // the entity may have nothing left to do
	}
}

// isStuck reports whether the calls of an entity wait for something that cannot happen before the
// server has stopped: for a worker with the code, for a worker that holds the entity, or for the
// end of a section, whose worker may be gone.
func (l *Lane) isStuck(e *entry) bool {
	return e.wait.worker || e.isOutlived() || l.reunion.awaits(e.address) || l.isEarly(e) || e.actor.entity.Row.Locked()
}

// retryLater sends the batch in flight again after a pause, or moves the fence. A lane whose node
// stops ends after a few attempts.
func (l *Lane) retryLater(now model.Time, next stage, err error) {
	r := &l.recovery
	r.stage, r.at = next, now.Add(backoff(r.attempts))
	if !l.hurried {
		return
	}
	if l.farewells++; l.farewells >= farewells {
		l.end(&fault.Error{Kind: fault.Unavailable, Text: ErrStoreAway.Error(), Cause: awayError{err}}, "the node stops")
		return
	}
	r.at = now.Add(backoff(l.farewells + 2))
}

// awayError is an error of the store that is also ErrStoreAway.
type awayError struct{ error }

// Unwrap returns both errors.
func (e awayError) Unwrap() []error { return []error{ErrStoreAway, e.error} }

// Unstored counts what a lane had not stored when it ended.
type Unstored struct {
	// Requests are calls of waiting clients, which got an error.
	Requests int
	// Outcomes are reports of steps, tasks and entity calls. Their bodies run again.
	Outcomes int
	// Names are the first addresses of these requests and outcomes.
	Names []string
}

// Unstored returns what the lane had not stored when it ended. It is empty while the lane lives.
func (l *Lane) Unstored() Unstored { return l.unstored }

// add counts an input that was not stored.
func (u *Unstored) add(in input) {
	switch in := in.(type) {
	case *messageInput:
		if in.origin.token != nil {
			u.Request(*in.address)
		}
	case *turnInput, *reportInput, *resultInput:
		u.Outcome(*in.base().address)
	default: // the next owner finds the input in the store
	}
}

// Request counts a request.
func (u *Unstored) Request(a model.Address) {
	u.Requests++
	u.name(a)
}

// Outcome counts the outcome of a step, a task or an entity call. The address may be zero if it is
// not known.
func (u *Unstored) Outcome(a model.Address) {
	u.Outcomes++
	u.name(a)
}

func (u *Unstored) name(a model.Address) {
	if len(u.Names) < unstoredNames && !a.IsZero() && !slices.Contains(u.Names, a.String()) {
		u.Names = append(u.Names, a.String())
	}
}

// Join adds the counts of another lane.
func (u *Unstored) Join(other Unstored) {
	u.Requests += other.Requests
	u.Outcomes += other.Outcomes
	u.Names = append(u.Names, other.Names...)
	u.Names = u.Names[:min(len(u.Names), unstoredNames)]
}

// String returns the counts as a part of a sentence.
func (u Unstored) String() string {
	if u.Requests+u.Outcomes == 0 {
		return "only the release of its shards is not stored"
	}
	of := ""
	if len(u.Names) > 0 {
		of = " (of " + strings.Join(u.Names, ", ") + ")"
	}
	return fmt.Sprintf("not stored: %d requests, whose callers got an error, and %d outcomes of steps, tasks and entity calls, which run again%s", u.Requests, u.Outcomes, of)
}
