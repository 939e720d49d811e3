package grpcapi_test

import (
	"strings"
	"testing"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// answer reads until the worker gets an answer to a turn, and returns all answers that it has read.
func (r raw) answer() (got []string) {
	r.t.Helper()
	for len(got) == 0 {
		m, err := r.st.Recv()
		if err != nil {
			r.t.Fatal(err)
		}

		for _, it := range m.GetItems() {
			switch {
			case it.GetDeliver() != nil:
				got = append(got, "deliver")
			case it.GetTurnTaken() != nil:
				got = append(got, "taken")
			case it.GetTurnRefused() != nil:
				got = append(got, "refused")
			case it.GetEvict() != nil:
				got = append(got, it.GetEvict().GetReason())
			}
		}
	}

	return got
}

// activation reads until the worker gets a run.
func (r raw) activation() *pb.Activation {
	r.t.Helper()
	for {
		m, err := r.st.Recv()
		if err != nil {
			r.t.Fatal(err)
		}
		for _, it := range m.GetItems() {
			if a := it.GetActivation(); a != nil {
				return a
			}
		}
	}
}

// Every kind of turn gets exactly one answer over the wire.
func TestEveryTurnIsAnswered(t *testing.T) {
	t.Parallel()
	step := model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStepCompleted, ID: "s", Name: "s"}}
	timer := model.Command{Kind: model.CommandStartTimer, Event: model.Event{ID: "t", Due: model.TimeOf(time.Now().Add(time.Hour))}}
	waits := []model.Reason{{Code: model.WaitSignal, Name: "s"}}
	const stale, closed = "stale: the worker no longer holds the run", "closed"

	for what, c := range map[string]struct {
		turn model.Turn
		want string
		seen int64 // the last event that the code has seen afterwards
		ends bool  // the worker does not hold the run afterwards
	}{
		"waits":          {turn: model.Turn{Waits: waits}, want: "taken"},
		"nothing":        {want: "taken"},
		"a running body": {turn: model.Turn{Running: true, Waits: []model.Reason{{Code: model.WaitStep, Name: "s"}}}, want: "taken"},
		"a timer":        {turn: model.Turn{Commands: []model.Command{timer}, Waits: waits}, want: "taken"},
		"an outcome":     {turn: model.Turn{Commands: []model.Command{step}}, want: "deliver", seen: 1},
		"an end":         {turn: model.Turn{Close: &model.Close{Status: model.Completed}}, want: closed, ends: true},
		"a block":        {turn: model.Turn{Blocked: &model.Reason{Code: model.WaitMismatch, Detail: "other code"}}, want: "taken", ends: true},
		"a wrong turn":   {turn: model.Turn{Seen: 99, Waits: waits}, want: "has seen event 99", ends: true},
		"a stale turn":   {turn: model.Turn{Generation: 1, Waits: waits}, want: stale},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			w := d.work(t, d.ctx)
			w.welcome("")
			j := join()
			j.GetJoin().Answers = true
			w.send(frame(1, j))
			in := wire.StartRequest(api.StartRequest{Address: model.Address{Tenant: "default", Type: "flow", Key: "k"}})
			if _, err := d.client.Start(d.ctx, in); err != nil {
				t.Fatal(err)
			}
			a := w.activation()

			turn := func(number uint64, t model.Turn) *pb.WorkerFrame {
				m := wire.Turn(&t)
				m.Run = a.GetRun()
				if t.Generation == 0 {
					m.Generation = a.GetGeneration()
				}
				return frame(number, &pb.WorkerItem{Item: &pb.WorkerItem_Turn{Turn: m}})
			}
			w.send(turn(2, c.turn))
			got := w.answer()

			// The next answer belongs to the next turn, so this turn got exactly one.
			after := closed
			if c.ends {
				after = stale
			}
			w.send(turn(3, model.Turn{Seen: c.seen, Close: &model.Close{Status: model.Completed}}))
			next := w.answer()
			if len(got) != 1 || !strings.Contains(got[0], c.want) || len(next) != 1 || next[0] != after {
				t.Errorf("answers %q and then %q, want %q and then %q", got, next, c.want, after)
			}
		})
	}
}

// refusal reads until the worker gets an answer to a turn, which must be that the server did not
// take it. It returns the error.
func (r raw) refusal() error {
	r.t.Helper()
	for {
		m, err := r.st.Recv()
		if err != nil {
			r.t.Fatal(err)
		}
		for _, it := range m.GetItems() {
			switch {
			case it.GetTurnRefused() != nil:
				return wire.ReadError(it.GetTurnRefused().GetError())
			case it.GetDeliver() != nil, it.GetTurnTaken() != nil, it.GetEvict() != nil:
				r.t.Fatalf("the turn is answered with %s", it)
			}
		}
	}
}

// A program that does not use the SDK reports a turn with a value above the limit of payloads. It
// learns that from a typed error, and nothing of the turn is recorded. The run goes to another
// worker, and waits for one if there is none. A value at the limit is fine.
func TestTurnWithATooLargeValue(t *testing.T) {
	t.Parallel()
	const most = 1000
	value := func(n int) model.Payload { return model.Payload{Data: make([]byte, n)} }
	turn := func(c model.Command) model.Turn { return model.Turn{Commands: []model.Command{c}} }
	send := &model.Message{Kind: model.MessageSignal, To: model.Address{Tenant: "default", Type: "flow", Key: "other"}, Name: "news"}
	sent := model.Event{Kind: model.EventSent, ID: "s", Name: "news", Target: send.To}

	for what, make := range map[string]func(n int) model.Turn{
		"the output of \"grow\"": func(n int) model.Turn {
			return turn(model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStepCompleted, ID: "s", Name: "grow", Output: value(n)}})
		},
		"the input of \"child\"": func(n int) model.Turn {
			return turn(model.Command{Kind: model.CommandStartChild, Event: model.Event{
				Kind: model.EventChildStarted, ID: "c", Name: "child", Target: model.Address{Tenant: "default", Type: "child", Key: "c"}, Input: value(n),
			}})
		},
		"the value of \"news\"": func(n int) model.Turn {
			m := *send
			m.Input = value(n)
			return turn(model.Command{Kind: model.CommandSend, Event: sent, Message: &m})
		},
		"the output of \"the execution\"": func(n int) model.Turn {
			return model.Turn{Close: &model.Close{Status: model.Completed, Output: value(n)}}
		},
		"the input of \"the next run\"": func(n int) model.Turn {
			return model.Turn{Close: &model.Close{Status: model.Continued, Input: value(n)}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := open(t, func(c *grpcapi.Config) { c.MaxPayload = most })
			report := func(w raw, a *pb.Activation, t model.Turn) {
				m := wire.Turn(&t)
				m.Run, m.Generation = a.GetRun(), a.GetGeneration()
				w.send(frame(2, &pb.WorkerItem{Item: &pb.WorkerItem_Turn{Turn: m}}))
			}
			worker := func() raw {
				w := d.work(t, d.ctx)
				w.welcome("")
				j := join()
				j.GetJoin().Answers = true
				w.send(frame(1, j))
				return w
			}
			start := func(key string) {
				in := wire.StartRequest(api.StartRequest{Address: model.Address{Tenant: "default", Type: "flow", Key: key}})
				if _, err := d.client.Start(d.ctx, in); err != nil {
					t.Fatal(err)
				}
			}

			faulty := worker()
			start("k")
			report(faulty, faulty.activation(), make(most+2000))
			if err := faulty.refusal(); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "at most 1000 are allowed") {
				t.Errorf("the worker gets %v", err)
			}

			other := worker()
			a := other.activation()
			if n := len(a.GetEvents()); n != 0 {
				t.Errorf("the turn has recorded %d events", n)
			}
			report(other, a, make(most))
			if got := other.answer(); got[0] != "deliver" && got[0] != "closed" {
				t.Errorf("a turn with a value at the limit is answered with %q", got)
			}
		})
	}
}
