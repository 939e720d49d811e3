package core

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// post simulates a lane and its store for one dead task. It has the dead task, the run at each
// address, and the messages that are on their way.
type post struct {
	ref   model.TaskRef
	dead  *StoredDeadTask
	runs  map[model.Address]*Execution
	way   []model.Message
	now   model.Time
	fresh byte

	begun    int         // runs that requeues began
	undone   int         // runs whose requeue was undone
	last     model.RunID // the last run that a requeue began
	with     string      // the input of that run if the requeue gave it another one
	executed bool        // a worker has claimed the task of the last run
}

func newPost(alone bool) *post {
	a := model.Address{Tenant: "t", Type: "wf", Key: "k"}
	ref := model.TaskRef{Address: a, Run: model.RunID{1}, ID: "0|work|1"}
	if alone {
		ref = model.TaskRef{Address: model.Address{Tenant: "t", Type: model.TaskPrefix + "work", Key: "k"}, Run: model.RunID{1}, ID: model.TaskStep}
	}
	p := &post{ref: ref, runs: map[model.Address]*Execution{}, now: noon, fresh: 1}
	spec := model.TaskSpec{Kind: "work", Queue: "q", Delay: time.Hour, Retry: model.Retry{MaxAttempts: 1}, Same: &model.TaskOrigin{Run: ref.Run, Step: ref.ID}}
	p.dead = &StoredDeadTask{Body: model.DeadTask{Address: ref.Address, Spec: spec, Input: model.Payload{Data: []byte("1")}, At: noon, Attempts: 1}}
	if alone {
		start := model.Start{Address: ref.Address, Run: ref.Run, Task: &spec}
		p.runs[ref.Address] = &Execution{Start: start, Outcome: model.Outcome{Status: model.Failed}}
	}
	return p
}

// send applies a message and its changes.
func (p *post) send(t *rapid.T, m *model.Message) Decision {
	x := p.runs[m.To]
	p.fresh++
	var d Decision

	if m.Kind == model.MessageRequeue {
		var dead *StoredDeadTask
		if m.To == p.ref.Address {
			dead = p.dead
		}
		x, d = DeliverDeadTaskOrder(x, m, dead, p.now, model.RunID{p.fresh})
	} else {
		x, d = Deliver(x, m, p.now, m.Fresh, DefaultLimits)
	}

	if d.Refusal() != nil && d.HasWrites() {
		t.Fatalf("a refusal writes: %+v", d)
	}
	if x != nil {
		p.runs[m.To] = x
	}

	if d.Start != nil {
		p.begun++
		if d.Start.Replaced != d.Replaces {
			t.Fatalf("run %s takes the place of %s and says that it is that of %s: a delete of the execution would not find it", d.Start.Run, d.Replaces, d.Start.Replaced)
		}
	}

	if c := d.DeadTask; c != nil {
		if c.Prev != p.dead.Count || c.Ref != p.ref {
			t.Fatalf("the dead task stands at %d, a change goes from %d of %v", p.dead.Count, c.Prev, c.Ref)
		}
		if c.Purged {
			p.dead = nil
		} else {
			p.dead = &StoredDeadTask{Count: c.Next, Body: c.Body}
		}
	}

	p.way = append(p.way, d.Messages...)
	return d
}

func (p *post) order(do model.DeadTaskVerb, count int64, in *model.Payload) *model.Message {
	m := &model.Message{Kind: model.MessageRequeue, To: p.ref.Address, DeadTask: &model.DeadTaskOrder{Do: do, Ref: p.ref, Count: count, Input: in}}
	return m
}

// current returns the run that the last requeue began, if it is open.
func (p *post) current() *Execution {
	for _, x := range p.runs {
		if x.Start.Run == p.last && x.Open() {
			return x
		}
	}
	return nil
}

// Clients requeue, undo and purge in any order, and their knowledge may be out of date. Each
// requeue that takes effect begins one run, no run is left after an undo, and a dead task whose
// requeued run is open cannot be purged (E38).
func TestDeadTaskOrdersHoldTheirPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPost(rapid.Bool().Draw(t, "alone"))
		marks := 0 // requeues that took effect
		deliver := func(t *rapid.T) {
			if len(p.way) > 0 {
				m := p.way[0]
				p.way = p.way[1:]
				p.send(t, &m)
			}
		}

		t.Repeat(map[string]func(*rapid.T){
			"requeue": func(t *rapid.T) {
				count := rapid.Int64Range(0, 2).Draw(t, "count")
				var in *model.Payload
				with := rapid.SampledFrom([]string{"", "2", "3"}).Draw(t, "edited")
				if with != "" {
					in = &model.Payload{Data: []byte(with)}
				}
				before, open := p.dead, p.current()

				d := p.send(t, p.order(model.DeadTaskRequeue, count, in))
				switch err := d.Refusal(); {
				case before == nil:
					if !fault.Is(err, fault.NotFound) {
						t.Fatalf("without a dead task: %v", err)
					}
				case before.Count != count:
					known := (in == nil || with == p.with) && !before.Body.Requeued.IsZero()
					if known && p.ref.RequeueAddress("work", d.Answer.Requeue) != before.Body.Requeued.Address {
						t.Fatalf("the answer names requeue %d, the run is %s", d.Answer.Requeue, before.Body.Requeued.Address)
					}
					if d.HasWrites() || known != (err == nil) || err != nil && !fault.Is(err, fault.Conflict) || known && (!d.Answer.Existing || d.Answer.Run != before.Body.Requeued.Run) {
						t.Fatalf("count %d of %d: %+v", count, before.Count, d)
					}
				case p.ref.Alone() && open != nil:
					if !fault.Is(err, fault.Conflict) {
						t.Fatalf("while it is open: %v", err)
					}
				case err != nil && p.runs[p.ref.Address].Outcome.Status == model.Completed: // done
				case err != nil:
					t.Fatal(err)
				default:
					marks++
					p.last, p.executed, p.with = d.Answer.Run, false, with
					if to := p.ref.RequeueAddress("work", d.Answer.Requeue); to != p.dead.Body.Requeued.Address {
						t.Fatalf("the answer names %s, the run is %s", to, p.dead.Body.Requeued.Address)
					}
					if p.dead.Count != count+1 || p.dead.Body.Requeued.Run != d.Answer.Run {
						t.Fatalf("the dead task afterwards: %+v", p.dead)
					}
					for len(p.way) > 0 {
						deliver(t)
					}
					x := p.current()
					if x == nil || !x.Alone() || x.Start.Task.Delay != 0 || (x.Start.Task.Same == nil) != (in != nil) {
						t.Fatalf("the run: %+v", x)
					}
				}
			},
			"undo": func(t *rapid.T) {
				if p.dead == nil || p.dead.Body.Requeued.IsZero() {
					return
				}
				q := p.dead.Body.Requeued
				m := p.order(model.DeadTaskUndo, p.dead.Count, nil)
				m.To, m.DeadTask.Run = q.Address, q.Run
				x, count := p.current(), p.dead.Count

				d := p.send(t, m)
				if took := d.Refusal() == nil; took != (x != nil && !p.executed) {
					t.Fatalf("undo: %v, open %v, executed %v", d.Refusal(), x != nil, p.executed)
				} else if took {
					p.undone++
					for len(p.way) > 0 {
						deliver(t)
					}
					if p.current() != nil || p.dead.Count != count-1 || !p.dead.Body.Requeued.IsZero() {
						t.Fatalf("after the undo: %+v", p.dead)
					}
				}
			},
			"purge": func(t *rapid.T) {
				if p.dead == nil {
					return
				}
				count := rapid.Int64Range(0, 2).Draw(t, "count")
				before, open := p.dead, p.current()
				d := p.send(t, p.order(model.DeadTaskPurge, count, nil))
				may := before.Count == count && !(p.ref.Alone() && open != nil && open.Start.Run == before.Body.Requeued.Run)
				if (p.dead == nil) != may || (d.Refusal() == nil) != may {
					t.Fatalf("purge at %d of %d, open %v: %v", count, before.Count, open != nil, d.Refusal())
				}
			},
			"executed": func(t *rapid.T) {
				x := p.current()
				if x == nil {
					return
				}

				if !p.executed {
					if _, ok := Claim(x, model.TaskStep, "w", p.now); !ok {
						t.Fatal("no claim")
					}
					p.executed = true
					return
				}

				task := x.Task(model.TaskStep)
				r := &model.TaskReport{Ref: model.ClaimRef{TaskRef: model.TaskRef{Address: x.Start.Address, Run: x.Start.Run, ID: model.TaskStep}, Claim: task.Claim}}
				if rapid.Bool().Draw(t, "fails") {
					r.Failure = &model.Failure{Message: "again"}
				}
				d := Report(x, r, p.now, DefaultLimits)
				if (len(d.Dead) == 1) != (r.Failure != nil) {
					t.Fatalf("dead tasks: %+v", d.Dead)
				}
			},
			"": func(t *rapid.T) {
				if p.begun != marks {
					t.Fatalf("%d requeues took effect, and %d runs began", marks, p.begun)
				}
			},
		})
	})
}

// A requeued task shows the outside world its original idempotency key, unless its input has
// changed.
func TestRequeueKeepsTheIdempotencyKey(t *testing.T) {
	t.Parallel()
	r := newTaskRun(&model.TaskSpec{Kind: "work", Queue: "q", Retry: model.Retry{MaxAttempts: 1}})
	if _, ok := Claim(r.x, model.TaskStep, "w", r.now); !ok {
		t.Fatal("no claim")
	}
	ref := model.TaskRef{Address: r.x.Start.Address, Run: r.x.Start.Run, ID: model.TaskStep}
	d := Report(r.x, &model.TaskReport{Ref: model.ClaimRef{TaskRef: ref, Claim: r.x.Task(model.TaskStep).Claim}, Failure: &model.Failure{Message: "no"}}, r.now, DefaultLimits)
	if len(d.Dead) != 1 {
		t.Fatalf("%+v", d)
	}

	if same := d.Dead[0].Task.Spec.Same; same == nil || *same != (model.TaskOrigin{Run: ref.Run, Step: model.TaskStep}) {
		t.Errorf("its idempotency key is made of %+v", same)
	}
	if r.x.Start.Task.Same != nil {
		t.Error("the spec of the run was changed")
	}
}

// If a requeue is undone and another one follows, the count is the same. A client that has seen the
// first requeue end must not confuse the two.
func TestOrdersThatAreOutOfDate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPost(false)
		requeue := func() model.RunID {
			d := p.send(t, p.order(model.DeadTaskRequeue, p.dead.Count, nil))
			if d.Refusal() != nil {
				t.Fatal(d.Refusal())
			}
			return d.Answer.Run
		}

		next := func() { m := p.way[0]; p.way = p.way[1:]; p.send(t, &m) }
		first := requeue()
		next() // deliver the start: the run begins
		undo := p.order(model.DeadTaskUndo, p.dead.Count, nil)
		undo.To, undo.DeadTask.Run = p.dead.Body.Requeued.Address, first
		p.send(t, undo)

		// The undo has ended the first run, but has not reached the dead task. A client that looks
		// at the dead task now may send the next order.
		stale := p.order(rapid.SampledFrom([]model.DeadTaskVerb{model.DeadTaskRequeue, model.DeadTaskPurge}).Draw(t, "do"), p.dead.Count, nil)
		stale.DeadTask.Run = first
		next() // the undo reaches the dead task
		second := requeue()
		d := p.send(t, stale)
		if stale.DeadTask.Do == model.DeadTaskRequeue && (d.Refusal() != nil || !d.Answer.Existing || d.Answer.Run != second) || stale.DeadTask.Do == model.DeadTaskPurge && !fault.Is(d.Refusal(), fault.Conflict) {
			t.Fatalf("the task is open as %s: %+v, %v", second, d.Answer, d.Refusal())
		}
	})
}

// Two clients requeue a task with another input. If both inputs are equal, the second client gets
// the run of the first requeue. Otherwise it gets a conflict, because the run has another input
// than the one that this client wants, or may have another one.
func TestRequeueWithAnInputIsRepeated(t *testing.T) {
	t.Parallel()
	plain := func(data string) *model.Payload { return &model.Payload{Data: []byte(data)} }
	sealed := func(data string, sum ...byte) *model.Payload {
		p := model.Payload{Data: []byte(data), Encoding: "json+aes"}
		if len(sum) > 0 {
			p = p.WithSum(sum)
		}
		return &p
	}

	for what, c := range map[string]struct {
		first, second *model.Payload
		conflict      string // part of the error; empty if the second order repeats the first one
	}{
		"the same input":                 {plain("2"), plain("2"), ""},
		"another input":                  {plain("2"), plain("3"), "with another input"},
		"the own input, then another":    {nil, plain("2"), "with its own input"},
		"an input, then none":            {plain("2"), nil, ""},
		"equal sums":                     {sealed("x", 1), sealed("y", 1), ""},
		"different sums":                 {sealed("x", 1), sealed("x", 2), "with another input"},
		"hidden, without sums":           {sealed("x"), sealed("x"), "cannot be compared"},
		"plain, then hidden without sum": {plain("2"), sealed("x"), "cannot be compared"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				p := newPost(rapid.Bool().Draw(t, "alone"))
				first := p.send(t, p.order(model.DeadTaskRequeue, 0, c.first))
				if err := first.Refusal(); err != nil {
					t.Fatal(err)
				}

				second := p.send(t, p.order(model.DeadTaskRequeue, 0, c.second))
				err := second.Refusal()
				switch {
				case second.HasWrites():
					t.Fatalf("the second order writes: %+v", second)
				case c.conflict == "" && (err != nil || second.Answer.Run != first.Answer.Run || !second.Answer.Existing || second.Answer.Requeue != 1):
					t.Fatalf("%+v, %v; want run %s", second.Answer, err, first.Answer.Run)
				case c.conflict != "" && (!fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), c.conflict)):
					t.Fatalf("%v; want a conflict %q", err, c.conflict)
				}
			})
		})
	}
}
