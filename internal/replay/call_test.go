package replay_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// callMessage returns a call of an entity.
func callMessage(key string) model.Message {
	return model.Message{Kind: model.MessageCall, To: account(key), Name: "add", Input: payload("1")}
}

// sentTo returns the step that called an entity.
func (e *engine) sentTo(t *testing.T, key string) string {
	t.Helper()
	i := slices.IndexFunc(e.events, func(ev model.Event) bool { return ev.Kind == model.EventSent && ev.Target.Key == key })
	if i < 0 {
		t.Fatalf("nothing was sent to %s:\n%s", key, dump(e.events))
	}
	return e.events[i].ID
}

func (e *engine) answerTo(t *testing.T, key, value string, f *model.Failure) {
	t.Helper()
	e.inject(model.Event{Kind: model.EventAnswered, ID: e.sentTo(t, key), Output: payload(value), Failure: f})
	e.settle()
}

// Calls whose answers are futures are in flight at the same time. The code gets the answers in the
// order of the history, live and on replay.
func TestCallsAsFutures(t *testing.T) {
	bubble(t, func(_ *engine, x replay.Ctx) (string, error) {
		a, b := x.SendFuture(callMessage("a"), "", nil), x.SendFuture(callMessage("b"), "", nil)
		i, err := x.Select([]*replay.Future{a, b})
		if err != nil || i != 1 {
			return "the first came first", err
		}
		if err := x.Get(a); err == nil || err.Error() != "broke" {
			return "no failure", err
		}
		return string(b.Payload().Data), nil
	}, func(e *engine) {
		e.settle()
		e.answerTo(t, "b", "seven", nil)
		e.checkReplay(t)
		e.answerTo(t, "a", "", &model.Failure{Message: "broke"})
		e.wantClosed(t, model.Completed, "seven")
	})
}

// When the scope of a call ends, the call is withdrawn, even if no coroutine waits for it. An
// answer that arrives later changes nothing.
func TestCallEndsWithItsScope(t *testing.T) {
	bubble(t, func(_ *engine, x replay.Ctx) (string, error) {
		f := x.WithTimeout(time.Minute).SendFuture(callMessage("a"), "", nil)
		if err := x.Get(f); !errors.Is(err, replay.ErrTimeout) {
			return "no timeout", err
		}
		c := x.SendFuture(callMessage("c"), "", nil)
		if err := x.Cancel(c); err != nil {
			return "", err
		}
		if err := x.Get(c); !errors.Is(err, replay.ErrCanceled) {
			return "not cancelled", err
		}
		return "end", x.Get(x.Next("go"))
	}, func(e *engine) {
		e.settle()
		for id := range e.timers {
			e.fire(id)
		}
		e.settle()
		for _, key := range []string{"a", "c"} {
			if !slices.ContainsFunc(e.events, func(ev model.Event) bool { return ev.Kind == model.EventWithdrawn && ev.ID == e.sentTo(t, key) }) {
				t.Errorf("the call of %s is not withdrawn:\n%s", key, dump(e.events))
			}
		}
		e.checkReplay(t)
		e.signal("go", "on")
		e.settle()
		e.wantClosed(t, model.Completed, "end")
	})
}
