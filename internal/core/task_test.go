package core

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

const noon = model.Time(1_000_000_000)

// taskRun is a run with tasks that a test drives. It keeps the events, so that the test can recover
// the run, and counts what happened to each task.
type taskRun struct {
	x      *Execution
	events []model.Event
	now    model.Time
	dead   map[string]int
	ended  map[string]int // outcomes by task
	last   map[string]int64
	began  map[string]int // attempts that began and were not given back
}

func newTaskRun(alone *model.TaskSpec) *taskRun {
	m := &model.Message{Kind: model.MessageStart, To: model.Address{Tenant: "t", Type: "wf", Key: "k"}, Task: alone}
	if alone != nil {
		m.To.Type = model.TaskPrefix + alone.Kind
	}
	x, _ := Deliver(nil, m, noon, model.RunID{1}, DefaultLimits)
	return &taskRun{x: x, now: noon, dead: map[string]int{}, ended: map[string]int{}, last: map[string]int64{}, began: map[string]int{}}
}

func (r *taskRun) took(d Decision) Decision {
	r.events = append(r.events, d.Events...)
	for _, t := range d.Dead {
		r.dead[t.Task.ID]++
	}
	for i := range d.Events {
		switch e := &d.Events[i]; {
		case e.Kind == model.EventStepCompleted, e.Kind == model.EventStepFailed, e.Kind == model.EventTaskTimedOut && e.Due == 0:
			r.ended[e.ID]++
		default:
		}
	}
	if d.Close != nil && r.x.Alone() {
		r.ended[model.TaskStep]++
	}
	return d
}

func (r *taskRun) schedule(t interface {
	Helper()
	Fatal(...any)
}, id string, spec *model.TaskSpec,
) {
	t.Helper()
	turn := &model.Turn{Run: r.x.Start.Run, Seen: r.x.Next - 1, Commands: []model.Command{{
		Kind: model.CommandSchedule, Event: model.Event{ID: id, Name: spec.Kind, Task: spec},
	}}}
	_, d, err := Apply(r.x, turn, r.now, model.RunID{}, DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	r.took(d)
}

// Whatever happens to tasks, in whatever order, this holds: A task has one holder at a time. Its
// claim tokens only grow. It has at most the allowed attempts and exactly one outcome. If the
// outcome is a failure, there is one dead task, otherwise none. The state can be recovered from the
// history, and the history shows how every claim ended (E16–E19, E24, E25, E31, E37, I3).
func TestTasksHoldTheirPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		spec := &model.TaskSpec{
			Kind: "work", Queue: "q", ToStart: time.Minute, ToClose: time.Minute, Silence: time.Minute,
			Retry: model.Retry{MaxAttempts: rapid.IntRange(0, 4).Draw(t, "attempts"), Initial: time.Second, Jitter: 500, Final: []string{"final"}},
		}

		alone := rapid.Bool().Draw(t, "alone")
		var r *taskRun
		ids := []string{"a", "b"}

		if alone {
			r, ids = newTaskRun(spec), []string{model.TaskStep}
		} else {
			r = newTaskRun(nil)
			for _, id := range ids {
				r.schedule(t, id, spec)
			}
		}

		var claims []model.ClaimRef
		counted := map[int64]bool{} // claims that their reports have ended
		canceled := int64(0)

		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) { r.now += model.Time(rapid.Int64Range(0, 90_000_000).Draw(t, "µs")) },
			"claim": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "task")
				before := r.x.Task(id)
				free := before != nil && !before.Held && before.Visible <= r.now && r.x.Open()
				d, ok := Claim(r.x, id, "w", r.now)
				if ok != free {
					t.Fatalf("claim of %s: %v, want %v", id, ok, free)
				}

				if !ok {
					if d.HasWrites() {
						t.Fatal("a claim that cannot be writes")
					}
					return
				}

				r.took(d)
				task := r.x.Task(id)
				if task.Claim <= r.last[id] {
					t.Fatalf("token %d after %d", task.Claim, r.last[id])
				}
				r.last[id] = task.Claim
				if r.began[id]++; spec.Retry.MaxAttempts > 0 && r.began[id] > spec.Retry.MaxAttempts {
					t.Fatalf("attempt %d of %d", r.began[id], spec.Retry.MaxAttempts)
				}

				if task.Attempt != r.began[id] {
					t.Fatalf("attempt %d, want %d", task.Attempt, r.began[id])
				}
				claims = append(claims, model.ClaimRef{TaskRef: model.TaskRef{Address: r.x.Start.Address, Run: r.x.Start.Run, ID: id}, Claim: task.Claim})
			},
			"report": func(t *rapid.T) {
				if len(claims) == 0 {
					t.Skip("none")
				}
				ref := rapid.SampledFrom(claims).Draw(t, "claim")
				rep := &model.TaskReport{Ref: ref}

				switch rapid.IntRange(0, 3).Draw(t, "how") {
				case 1:
					rep.Failure = &model.Failure{Message: "no"}
				case 2:
					rep.Failure = &model.Failure{Type: "final", Message: "no"}
				case 3:
					rep.Returned = true
				}

				task := r.x.Task(ref.ID)
				mine := task != nil && task.Held && task.Claim == ref.Claim
				d := r.took(Report(r.x, rep, r.now, DefaultLimits))
				if d.HasWrites() != mine {
					t.Fatalf("a report of claim %d writes: %v; it is held: %v", ref.Claim, d.HasWrites(), mine)
				}
				if err := d.Refusal(); err != nil && (mine || !fault.Is(err, fault.NotOwned)) {
					t.Fatalf("refused: %v", err)
				}

				if mine {
					counted[ref.Claim] = true
				}
				if mine && rep.Returned && r.x.Open() { // otherwise the task was cancelled
					r.began[ref.ID]--
				}
				if mine && rep.Failure != nil && rep.Failure.Type == "final" && r.x.Task(ref.ID) != nil {
					t.Fatal("an error that is final is attempted again")
				}

				// The reply may have been lost: the same report gets the same answer, and has no
				// effect.
				if mine {
					again := Report(r.x, rep, r.now, DefaultLimits)
					if again.Refusal() != nil || again.HasWrites() {
						t.Fatalf("the same report again: %v, writes %v", again.Refusal(), again.HasWrites())
					}
				}
			},
			"expire": func(t *rapid.T) {
				id := rapid.SampledFrom(ids).Draw(t, "task")
				what := rapid.SampledFrom([]string{model.TimeoutToStart, model.TimeoutToClose, model.TimeoutSilence, model.TimeoutTotal, model.FailureLost}).Draw(t, "what")
				task := r.x.Task(id)
				if task == nil {
					return
				}
				if d := r.took(Expire(r.x, Expiry{id, task.Held, task.Claim, what}, r.now, DefaultLimits)); what == model.TimeoutTotal && d.HasWrites() {
					t.Fatal("there is no such time-out")
				}
			},
			"cancel": func(t *rapid.T) {
				if !alone || !r.x.Open() || rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
					return
				}
				_, d := Deliver(r.x, &model.Message{Kind: model.MessageCancel, To: r.x.Start.Address}, r.now, model.RunID{}, DefaultLimits)
				r.took(d)
				canceled = r.x.Canceling
			},
			"": func(t *rapid.T) {
				for _, ref := range claims {
					var f Fate
					for _, e := range r.events { // each page has one event
						if e.Seq > ref.Claim && f.Follow(&ref, alone, []model.Event{e}) {
							break
						}
					}
					f.End(&ref, alone, &r.x.Outcome)
					task := r.x.Task(ref.ID)
					held := task != nil && task.Held && task.Claim == ref.Claim
					if f.Over == held || f.Reported != counted[ref.Claim] || held && f.Canceled != (canceled != 0) {
						t.Fatalf("claim %d of %s is held: %v, reported: %v, canceled: %v; the history tells %+v", ref.Claim, ref.ID, held, counted[ref.Claim], canceled != 0, f)
					}
				}

				for _, id := range ids {
					switch open := r.x.Task(id) != nil; {
					case open && (r.ended[id] != 0 || r.dead[id] != 0):
						t.Fatalf("%s is open and has ended", id)
					case !open && r.ended[id] != 1:
						t.Fatalf("%s has %d outcomes", id, r.ended[id])
					case r.dead[id] > 1:
						t.Fatalf("%s died %d times", id, r.dead[id])
					}
				}

				got, err := Recover(r.x.Start, r.x.Outcome, r.events, nil)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got.tasks, r.x.tasks) && len(got.tasks)+len(r.x.tasks) > 0 {
					t.Fatalf("recovered %+v, want %+v", got.tasks, r.x.tasks)
				}

				if !reflect.DeepEqual(got.endedClaims, r.x.endedClaims) && len(got.endedClaims)+len(r.x.endedClaims) > 0 {
					t.Fatalf("recovered %v, want %v", got.endedClaims, r.x.endedClaims)
				}
			},
		})
	})
}

// A task whose code kills its worker does not kill all workers (E27).
func TestPoisonTask(t *testing.T) {
	t.Parallel()
	r := newTaskRun(&model.TaskSpec{Kind: "work", Queue: "q"})
	for n := range maxLost {
		r.now += 1_000_000_000_000
		d, ok := Claim(r.x, model.TaskStep, fmt.Sprint("w", n), r.now)
		if !ok {
			t.Fatalf("claim %d", n)
		}
		claim := d.Events[0].Seq
		d = r.took(Expire(r.x, Expiry{model.TaskStep, true, claim, model.FailureLost}, r.now, DefaultLimits))
		if last := n == maxLost-1; (d.Close != nil) != last {
			t.Fatalf("after %d lost workers: closed is %v", n+1, d.Close != nil)
		}
	}

	if f := r.x.Outcome.Failure; f == nil || f.Type != model.FailurePoison || r.dead[model.TaskStep] != 1 {
		t.Errorf("outcome %+v, dead %v", r.x.Outcome, r.dead)
	}
}

// A task whose worker reports a failure has not lost its worker, even if the failure says that a
// worker was lost: it may be the failure of another task. So the core does not end the task as a
// task that kills its workers, and a repeated report gets the same answer. The core refuses a
// report for a claim that the engine has taken away.
func TestReportedLossIsNone(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{model.FailureLost, model.FailurePoison, model.FailureSpent} {
		r := newTaskRun(&model.TaskSpec{Kind: "work", Queue: "q"})
		claim := func(n int) model.ClaimRef {
			r.now += 1_000_000_000_000
			d, ok := Claim(r.x, model.TaskStep, fmt.Sprint("w", n), r.now)
			if !ok {
				t.Fatalf("%s: claim %d", typ, n)
			}
			return model.ClaimRef{TaskRef: model.TaskRef{Address: r.x.Start.Address, Run: r.x.Start.Run, ID: model.TaskStep}, Claim: d.Events[0].Seq}
		}
		for n := range maxLost + 1 {
			ref := claim(n)
			report := &model.TaskReport{Ref: ref, Failure: &model.Failure{Type: typ, Message: "that of another task"}}
			if d := r.took(Report(r.x, report, r.now, DefaultLimits)); d.Refusal() != nil || d.Close != nil {
				t.Fatalf("%s: report %d: %+v", typ, n, d)
			}
			if d := Report(r.x, report, r.now, DefaultLimits); d.Refusal() != nil || len(d.Events) > 0 {
				t.Errorf("%s: the same report again: %+v", typ, d)
			}
		}

		ref := claim(maxLost + 1)
		if d := r.took(Expire(r.x, Expiry{model.TaskStep, true, ref.Claim, model.FailureLost}, r.now, DefaultLimits)); d.Close != nil || r.x.Task(model.TaskStep).lost != 1 {
			t.Errorf("%s: one worker went away: %+v", typ, d)
		}
		if d := Report(r.x, &model.TaskReport{Ref: ref}, r.now, DefaultLimits); d.Refusal() == nil {
			t.Errorf("%s: the report of a lost claim is taken: %+v", typ, d)
		}
	}
}

// A task was asked to stop, and its worker never reports. Whichever time-out ends the task, it ends
// as cancelled and does not become a dead task.
func TestCanceledTaskDoesNotDie(t *testing.T) {
	t.Parallel()
	for _, what := range []string{model.TimeoutTotal, model.TimeoutToClose, model.FailureLost, "no room"} {
		r := newTaskRun(&model.TaskSpec{Kind: "work", Queue: "q", Total: time.Hour, ToClose: time.Minute})
		claim := int64(0)
		for n := range maxLost {
			d, ok := Claim(r.x, model.TaskStep, fmt.Sprint("w", n), r.now)
			if !ok {
				t.Fatalf("%s: claim %d", what, n)
			}
			if claim = d.Events[0].Seq; n < maxLost-1 {
				r.took(Expire(r.x, Expiry{model.TaskStep, true, claim, model.FailureLost}, r.now, DefaultLimits))
			}
		}

		if _, d := Deliver(r.x, &model.Message{Kind: model.MessageCancel, To: r.x.Start.Address}, r.now, model.RunID{}, DefaultLimits); d.Refusal() != nil || d.Close != nil {
			t.Fatalf("%s: %+v", what, d)
		}
		r.now = r.now.Add(2 * time.Hour)
		var d Decision

		if what == "no room" {
			ref := model.TaskRef{Address: r.x.Start.Address, Run: r.x.Start.Run, ID: model.TaskStep}
			d = Report(r.x, &model.TaskReport{Ref: model.ClaimRef{TaskRef: ref, Claim: claim}, Returned: true}, r.now, Limits{Events: 1})
		} else {
			d = Expire(r.x, Expiry{model.TaskStep, true, claim, what}, r.now, DefaultLimits)
		}

		if d.Close == nil || d.Close.Status != model.Canceled || len(d.Dead) != 0 {
			t.Errorf("%s: it ends as %+v, with %d dead tasks", what, d.Close, len(d.Dead))
		}
	}
}

// Of many failed attempts, a dead task keeps the first and the last ones (E37).
func TestFailuresOfADeadTask(t *testing.T) {
	t.Parallel()
	r := newTaskRun(&model.TaskSpec{Kind: "work", Queue: "q", Retry: model.Retry{MaxAttempts: 250, Initial: 1, Max: 1, Coefficient: 1000}})
	var dead []DeadTask
	for n := 1; n <= 250; n++ {
		r.now += 1_000_000
		if _, ok := Claim(r.x, model.TaskStep, "w", r.now); !ok {
			t.Fatalf("attempt %d cannot begin", n)
		}
		ref := model.ClaimRef{TaskRef: model.TaskRef{ID: model.TaskStep}, Claim: r.x.Task(model.TaskStep).Claim}
		d := Report(r.x, &model.TaskReport{Ref: ref, Failure: &model.Failure{Message: fmt.Sprint(n)}}, r.now, DefaultLimits)
		dead = append(dead, d.Dead...)
	}

	if len(dead) != 1 {
		t.Fatalf("%d dead tasks", len(dead))
	}
	got := dead[0].Task
	if len(got.Failures) != keptAttempts || got.Dropped != 150 || got.Failures[0].Failure.Message != "1" || got.Failures[99].Failure.Message != "250" || got.Failures[50].Failure.Message != "201" {
		t.Errorf("%d kept, %d dropped, from %s to %s", len(got.Failures), got.Dropped, got.Failures[0].Failure.Message, got.Failures[99].Failure.Message)
	}
}

// Assign gives new tasks to workers in the order in which the turn schedules them. It skips tasks
// that the same turn has withdrawn.
func TestAssign(t *testing.T) {
	t.Parallel()
	r := newTaskRun(nil)
	spec := &model.TaskSpec{Kind: "work", Queue: "q"}
	r.schedule(t, "old", spec)

	turn := &model.Turn{Run: r.x.Start.Run, Seen: r.x.Next - 1}
	for _, id := range []string{"a", "b", "c", "d"} {
		turn.Commands = append(turn.Commands, model.Command{Kind: model.CommandSchedule, Event: model.Event{ID: id, Task: spec}})
		if id == "b" {
			turn.Commands = append(turn.Commands, model.Command{Kind: model.CommandWithdraw, Event: model.Event{ID: id}})
		}
	}

	_, d, err := Apply(r.x, turn, r.now, model.RunID{}, DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	free := 2
	var order []string

	Assign(r.x, &d, func(task *Task, claim int64) string {
		if free == 0 {
			return ""
		}
		free--
		order = append(order, fmt.Sprint(task.ID, claim))
		return "w"
	})

	if want := []string{"a2", "c5"}; !reflect.DeepEqual(order, want) {
		t.Errorf("assigned %v, want %v", order, want)
	}
	r.events = append(r.events, d.Events...)
	got, err := Recover(r.x.Start, r.x.Outcome, r.events, nil)
	if err != nil || !reflect.DeepEqual(got.tasks, r.x.tasks) {
		t.Errorf("recovered %+v, want %+v: %v", got.tasks, r.x.tasks, err)
	}
}

func TestPauseOfRetries(t *testing.T) {
	t.Parallel()
	r := model.Retry{}
	for failed, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 7: time.Minute, 1 << 40: time.Minute} {
		if got := r.Pause(failed, 0.9); got != want {
			t.Errorf("after %d failures: %s, want %s", failed, got, want)
		}
	}

	rapid.Check(t, func(t *rapid.T) {
		r := model.Retry{
			Initial: time.Duration(rapid.Int64().Draw(t, "initial")), Max: time.Duration(rapid.Int64().Draw(t, "max")),
			Coefficient: rapid.Int64().Draw(t, "coefficient"), Jitter: rapid.Int64().Draw(t, "jitter"),
		}
		if d := r.Pause(rapid.Int().Draw(t, "failed"), rapid.Float64Range(-1, 1).Draw(t, "luck")); d < 0 {
			t.Fatalf("a pause of %s", d)
		}
	})
}

// A task whose policy allows attempts forever ends when the history of its run has no room for more
// (E15).
func TestTaskAtTheEndOfItsHistory(t *testing.T) {
	t.Parallel()
	lim := DefaultLimits
	lim.Events = 10
	r := newTaskRun(&model.TaskSpec{Kind: "work", Queue: "q"})
	for n := 0; r.x.Open(); n++ {
		r.now += 1_000_000_000_000
		if _, ok := Claim(r.x, model.TaskStep, "w", r.now); !ok || n > 10 {
			t.Fatalf("attempt %d: %v", n, ok)
		}
		ref := model.ClaimRef{TaskRef: model.TaskRef{ID: model.TaskStep}, Claim: r.x.Task(model.TaskStep).Claim}
		r.took(Report(r.x, &model.TaskReport{Ref: ref, Failure: &model.Failure{Message: "no"}}, r.now, lim))
	}
	if f := r.x.Outcome.Failure; f.Type != model.FailureHistory || r.dead[model.TaskStep] != 1 || r.x.Next > lim.Events {
		t.Errorf("%+v after %d events", f, r.x.Next)
	}
}

// If a turn asks for a task with invalid numbers, the core refuses the whole turn and applies
// nothing.
func TestTasksThatCannotBe(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*model.TaskSpec){
		"negative delay":     func(s *model.TaskSpec) { s.Delay = -1 },
		"endless delay":      func(s *model.TaskSpec) { s.Delay = math.MaxInt64 },
		"negative time-out":  func(s *model.TaskSpec) { s.Total = math.MinInt64 },
		"endless heartbeats": func(s *model.TaskSpec) { s.Silence = math.MaxInt64 },
		"shrinking pauses":   func(s *model.TaskSpec) { s.Retry.Coefficient = 500 },
		"too much jitter":    func(s *model.TaskSpec) { s.Retry.Jitter = 1001 },
		"negative attempts":  func(s *model.TaskSpec) { s.Retry.MaxAttempts = -1 },
		"priority":           func(s *model.TaskSpec) { s.Priority = math.MaxInt },
		"weight":             func(s *model.TaskSpec) { s.Weight = -1 },
	} {
		spec := &model.TaskSpec{Kind: "work", Queue: "q"}
		change(spec)
		for _, kind := range []model.CommandKind{model.CommandSchedule, model.CommandStartChild} {
			r := newTaskRun(nil)
			before := r.x.Clone()
			_, d, err := Apply(r.x, &model.Turn{Run: r.x.Start.Run, Commands: []model.Command{
				{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStepCompleted, ID: "fine"}},
				{Kind: kind, Event: model.Event{ID: "t", Task: spec, Target: model.Address{Tenant: "t", Type: model.TaskPrefix + "work", Key: "k"}}},
			}}, r.now, model.RunID{}, DefaultLimits)
			if !fault.Is(err, fault.Invalid) || d.HasWrites() || !reflect.DeepEqual(before, r.x) {
				t.Errorf("%s: %v, writes %v, state %+v, want %+v", name, err, d.HasWrites(), r.x, before)
			}
		}
	}
}
