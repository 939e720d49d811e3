package core_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// Whatever the limits are, a refused message writes nothing (I10: the world checks it), and a run
// gets all signals that come with a start or none of them. TestRandomInputs has no limits of bytes.
func TestRefusedMessagesWriteNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t.Fatalf)
		w.lim = core.Limits{
			Events: rapid.Int64Range(3, 30).Draw(t, "events"), Signals: rapid.IntRange(1, 8).Draw(t, "signals"), Timers: 1,
			Unread: pick(t, "unread", 0, 1_000, 3_000), Bytes: pick(t, "bytes", 0, 2_000, 10_000),
		}
		size := func() model.Payload {
			return model.Payload{Data: []byte(strings.Repeat("x", pick(t, "size", 0, 100, 700, 1_200)))}
		}

		for range rapid.IntRange(1, 12).Draw(t, "messages") {
			m := &model.Message{To: address("a")}
			m.Kind = pick(t, "kind", model.MessageStart, model.MessageStart, model.MessageSignal, model.MessageUpdate, model.MessageSettle, model.MessagePause)
			switch m.Kind {
			case model.MessageStart:
				for range pick(t, "with", 0, 1, 2, 3, 6) {
					m.With = append(m.With, model.Event{Name: pick(t, "name", "x", "y"), Input: size()})
				}
			case model.MessagePause:
				m.Failure = &model.Failure{Message: string(size().Data)}
			default:
				m.Name, m.Input = pick(t, "name", "x", "y", "z"), size()
			}

			d := w.deliver(m)
			got := len(signalsOf(d.Events))
			if d.Start != nil {
				got += len(signalsOf(d.Start.Carried))
			}
			if want := len(m.With); m.Kind == model.MessageStart && got != want && (got != 0 || d.Refusal() == nil) {
				t.Fatalf("a start with %d signals leaves %d: %v", want, got, d.Refusal())
			}
		}
	})
}
