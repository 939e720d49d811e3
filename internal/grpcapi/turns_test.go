package grpcapi_test

import (
	"strings"
	"testing"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
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
