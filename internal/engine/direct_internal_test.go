package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/feed"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// newLife returns an incarnation with or without a lease.
func newLife(serving bool) *incarnation {
	inc := &incarnation{eng: &Engine{clock: newClock(storeclock.Config{}, nil), layout: model.NewLayout(1, nil), feed: feed.New(feed.Config{})}}
	if serving {
		inc.validUntil.Store(int64(time.Hour))
	}
	return inc
}

// An owner that is not sure of its lease gives no answer that exists only in its memory. Any node
// may give an answer that is durable.
func TestAnswersWithoutALease(t *testing.T) {
	t.Parallel()
	refused := lane.Answer{Token: 1, Answer: model.Answer{Failure: &model.Failure{Kind: fault.NotFound.String(), Message: "no"}}}
	refused.Err = core.RefusalOf(refused.Answer)
	existing := lane.Answer{Token: 1, Answer: model.Answer{Existing: true}}
	stored := existing
	stored.Committed = true
	done := lane.Answer{Token: 1}
	ended := lane.Answer{Token: 1, Result: &lane.Result{Outcome: model.Outcome{Status: model.Completed}}}
	dead := lane.Answer{Token: 1, Begun: true, Answer: model.Answer{Run: model.RunID{7}}, Err: fault.New(fault.Unavailable, "the lane has ended")}

	for _, c := range []struct {
		name    string
		kind    askKind
		serving bool
		answer  lane.Answer
		moved   bool // the sender asks another owner, and the request may have been applied
		err     error
	}{
		{"done", askSend, false, done, false, nil},
		{"refused", askSend, false, refused, true, nil},
		{"refused by an owner", askSend, true, refused, false, refused.Err},
		{"existing", askRun, false, existing, true, nil},
		{"existing, and committed", askSend, false, stored, false, nil},
		{"existing at an owner", askRun, true, existing, false, nil},
		{"ended", askRun, false, ended, false, nil},
		{"the lane has ended", askRun, true, dead, true, nil},
		{"not the owner", askSend, true, lane.Answer{Token: 1, Err: lane.ErrNotOwner}, true, nil},
		{"query", askQuery, false, done, false, lane.ErrAskAgain},
		{"query at an owner", askQuery, true, done, false, nil},
		{"brief", askBrief, false, done, false, lane.ErrInterrupted},
		{"brief at an owner", askBrief, true, done, false, nil},
	} {
		s := &served{inc: newLife(c.serving), kind: c.kind}
		got := s.judge(&c.answer)
		if got == nil {
			got = tell(&c.answer)
		}
		got, err := decodeTold(mustEncode(got))
		if err != nil {
			t.Fatal(err)
		}

		if got.Moved != c.moved || got.Taken != c.moved {
			t.Errorf("%s: moved %t, taken %t", c.name, got.Moved, got.Taken)
		}
		if c.moved {
			if a, _ := got.answer(); a.Begun != c.answer.Begun || a.Begun && a.Answer.Run != c.answer.Answer.Run {
				t.Errorf("%s: begun %t, run %s", c.name, a.Begun, a.Answer.Run)
			}
			continue
		}
		a, err := got.answer()
		if (err == nil) != (c.err == nil) || c.err != nil && err.Error() != c.err.Error() || fault.KindOf(err) != fault.KindOf(c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
		if (a.Result == nil) != (c.answer.Result == nil) {
			t.Errorf("%s: result %+v", c.name, a.Result)
		}
	}

	for _, known := range knownErrors {
		a, err := tell(&lane.Answer{Err: known}).answer()
		if !errors.Is(err, known) || !errors.Is(a.Err, known) {
			t.Errorf("%v arrives as %v", known, err)
		}
	}
}

// The lane treats a request id as fresh only if the node has acquired no shards since the request
// arrived.
func TestFreshRequestsOfOtherNodes(t *testing.T) {
	t.Parallel()
	s := &laneShell{inc: newLife(true), lane: &lane.Lane{}}
	own, linked := &model.Message{}, &model.Message{Linked: newID()}
	fresh := func(m *model.Message) bool { return s.isFresh(&op{message: m, fresh: true}) }
	if !fresh(own) || !fresh(linked) || s.isFresh(&op{message: linked}) {
		t.Error("before shards were acquired")
	}
	s.inc.tenure.Add(1)
	if !fresh(own) || fresh(linked) {
		t.Error("after shards were acquired")
	}
}
