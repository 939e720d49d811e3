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

// After its i-th failure a task may begin again exactly when its policy says:
// initial·coefficient^(i−1) later, but at most the longest pause later. Jitter changes the pause by
// at most its share. The task may not begin a moment earlier (E23).
func TestRetriesBeginExactlyInTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := model.Retry{
			Initial: time.Duration(rapid.IntRange(1, 5000).Draw(t, "initial")) * time.Millisecond, Coefficient: rapid.Int64Range(1000, 4000).Draw(t, "coefficient"),
			Jitter: rapid.SampledFrom([]int64{0, 0, 100, 1000}).Draw(t, "jitter"),
		}

		policy.Max = policy.Initial * time.Duration(rapid.IntRange(1, 50).Draw(t, "max"))
		r := newTaskRun(&model.TaskSpec{Kind: "work", Queue: "q", Retry: policy})
		for i := 1; i <= 12; i++ {
			visible := r.x.Task(model.TaskStep).Visible
			if i > 1 {
				if _, ok := Claim(r.x, model.TaskStep, "w", visible-1); ok {
					t.Fatalf("attempt %d begins before its time", i)
				}
			}

			r.now = visible
			if _, ok := Claim(r.x, model.TaskStep, "w", r.now); !ok {
				t.Fatalf("attempt %d does not begin in time", i)
			}
			r.now += model.Time(rapid.Int64Range(0, 1_000_000).Draw(t, "took"))
			ref := model.ClaimRef{TaskRef: model.TaskRef{ID: model.TaskStep}, Claim: r.x.Task(model.TaskStep).Claim}
			d := Report(r.x, &model.TaskReport{Ref: ref, Failure: &model.Failure{Message: "no"}}, r.now, DefaultLimits)
			// want is the pause in microseconds.
			want := min(float64(policy.Initial)*math.Pow(float64(policy.Coefficient)/1000, float64(i-1)), float64(policy.Max)) / 1000
			got := float64(r.x.Task(model.TaskStep).Visible - r.now)
			if most := 1 + want*float64(policy.Jitter)/1000; math.Abs(got-want) > most || d.Events[0].Due != r.x.Task(model.TaskStep).Visible {
				t.Fatalf("after failure %d it pauses %f µs, want %f, give or take %f", i, got, want, most)
			}
		}
	})
}

// A run never has more open tasks than the limit. If a turn would exceed the limit, the core
// refuses the whole turn. If the code asks again for a task that is already open, the core accepts
// the turn and writes nothing, even when the run has reached the limit (E7, E8, E29).
func TestOpenTasksAreCapped(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lim := DefaultLimits
		lim.Tasks = rapid.IntRange(1, 6).Draw(t, "cap")
		r := newTaskRun(nil)
		spec := &model.TaskSpec{Kind: "work", Queue: "q"}
		scheduled := map[string]int{}
		next := 0

		apply := func(t *rapid.T, ids ...string) (Decision, error) {
			turn := &model.Turn{Run: r.x.Start.Run, Seen: r.x.Next - 1}
			for _, id := range ids {
				turn.Commands = append(turn.Commands, model.Command{Kind: model.CommandSchedule, Event: model.Event{ID: id, Task: spec}})
			}
			before := r.x.Clone()
			_, d, err := Apply(r.x, turn, r.now, model.RunID{}, lim)
			for _, e := range r.took(d).Events {
				scheduled[e.ID]++
			}
			if err != nil && (d.HasWrites() || !reflect.DeepEqual(before, r.x.Clone())) {
				t.Fatalf("a turn that is refused has an effect: %v", err)
			}
			return d, err
		}

		t.Repeat(map[string]func(*rapid.T){
			"schedule": func(t *rapid.T) {
				var ids []string
				for range rapid.IntRange(1, 4).Draw(t, "tasks") {
					ids = append(ids, fmt.Sprint("t", next))
					next++
				}
				open := len(r.x.Tasks())
				_, err := apply(t, ids...)
				if fits := open+len(ids) <= lim.Tasks; fits != (err == nil) || err != nil && !fault.Is(err, fault.Exhausted) {
					t.Fatalf("%d more beside %d of %d: %v", len(ids), open, lim.Tasks, err)
				}
			},
			"again": func(t *rapid.T) {
				var ids []string
				for _, task := range r.x.Tasks() {
					ids = append(ids, task.ID)
				}
				if d, err := apply(t, ids...); err != nil || d.HasWrites() {
					t.Fatalf("what is open is asked for again: %v, %+v", err, d)
				}
			},
			"end": func(t *rapid.T) {
				if len(r.x.Tasks()) == 0 {
					t.Skip("none")
				}
				id := rapid.SampledFrom(r.x.Tasks()).Draw(t, "task").ID
				if _, ok := Claim(r.x, id, "w", r.now); !ok {
					t.Fatal("it cannot be claimed")
				}
				r.took(Report(r.x, &model.TaskReport{Ref: model.ClaimRef{TaskRef: model.TaskRef{ID: id}, Claim: r.x.Task(id).Claim}}, r.now, lim))
			},
			"": func(t *rapid.T) {
				if n := len(r.x.Tasks()); n > lim.Tasks {
					t.Fatalf("%d open tasks of at most %d", n, lim.Tasks)
				}
				for id, n := range scheduled {
					if n != 1 && id != "" {
						t.Fatalf("%s is scheduled %d times", id, n)
					}
				}
			},
		})
	})
}
