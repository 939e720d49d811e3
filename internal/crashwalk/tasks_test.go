package crashwalk_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var (
	posted   = perdure.DeclareActivity[string, string]("posted", perdure.OnQueue("post"))
	unsteady = perdure.DeclareActivity[string, string]("unsteady", perdure.OnQueue("post"), perdure.Constant(10, time.Second))
	endless  = perdure.DeclareActivity[string, string]("endless", perdure.OnQueue("post"))
	deadly   = perdure.DeclareActivity[string, string]("deadly", perdure.OnQueue("post"))
	keeping  = perdure.DeclareActivity[int, int]("keeping", perdure.OnQueue("post"), perdure.Constant(10, time.Second))
	kept     = perdure.NewState[int]("kept")
	mailing  = perdure.DeclareWorkflow[string, string]("mailing")
)

// taskScenarios are about tasks in queues. If a process dies, its claim uses up an attempt, so a
// history can differ from the history without a fault. tasksEnd has the checks for these histories.
func taskScenarios() []*scenario {
	return []*scenario{
		{
			name:     "queued activities",
			selfless: true,
			loose:    true,
			bodies:   map[string]int{"one": 1, "two": 1, "three": 1},
			check:    tasksEnd(0),
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{
					posted.Bind(func(_ context.Context, in string) (string, error) { w.recordBody(in); return in, nil }),
					mailing.Bind(func(ctx perdure.WorkflowCtx, in string) (string, error) {
						one, err := posted.Run(ctx, "one")
						if err != nil {
							return "", err
						}
						rest, err := perdure.All(ctx, posted.Go(ctx, "two"), posted.Go(ctx, "three"))
						return fmt.Sprint(in, one, rest), err
					}),
				}
			}, ending(mailing, ">", "k", ">one[two three]")),
		},
		{
			name:     "a submitted task with a retry",
			selfless: true,
			loose:    true,
			maybe:    []string{"unsteady"}, // the first attempt may be lost before it starts
			check:    tasksEnd(0),
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{unsteady.Bind(func(ctx context.Context, in string) (string, error) {
					w.recordBody("unsteady")
					if perdure.Attempt(ctx) == 1 {
						return "", errors.New("not yet")
					}
					return in, nil
				})}
			}, func(d *driver) error {
				x, err := submit(d, unsteady, "letter", "k")
				if err != nil {
					return err
				}
				return result(d, x, "letter")
			}),
		},
		{
			name:  "a canceled task",
			loose: true,
			maybe: []string{"endless"},
			check: tasksEnd(0),
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{endless.Bind(func(ctx context.Context, _ string) (string, error) {
					w.recordBody("endless")
					<-ctx.Done()
					return "", context.Cause(ctx)
				})}
			}, func(d *driver) error {
				x, err := submit(d, endless, "letter", "k")
				if err != nil {
					return err
				}
				if err := d.awaitBody("endless"); err != nil {
					return err
				}
				if err := d.patiently(func() error { return cancel(d, x, "changed my mind") }); err != nil {
					return err
				}
				return ends(d, x, perdure.Canceled, "")
			}),
		},
		{
			name:  "a task that writes",
			loose: true,
			maybe: []string{"keeping"},
			check: both(tasksEnd(0), taskWrote),
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{keeping.Bind(func(ctx context.Context, top int) (int, error) {
					w.recordBody("keeping")
					at, _, err := kept.Load(ctx)
					if err != nil {
						return 0, err
					}
					for ; at < top; at++ {
						perdure.Log(ctx).Info("keeps", "what", fmt.Sprintf("%02d.%d", perdure.Attempt(ctx), at))
						if err := errors.Join(perdure.StreamData(ctx, at), kept.Save(ctx, at+1)); err != nil {
							return 0, err
						}
					}
					return at, nil
				})}
			}, func(d *driver) error {
				x, err := submit(d, keeping, 3, "k")
				if err != nil {
					return err
				}
				return result(d, x, 3)
			}),
		},
		{
			name:     "a dead task",
			selfless: true,
			loose:    true,
			maybe:    []string{"deadly"},
			check:    tasksEnd(1),
			stages: alone(func(w *world) perdure.Group {
				return perdure.Group{deadly.Bind(func(context.Context, string) (string, error) {
					w.recordBody("deadly")
					return "", perdure.Permanent(errors.New("no such address"))
				})}
			}, func(d *driver) error {
				x, err := submit(d, deadly, "letter", "k")
				if err != nil {
					return err
				}
				return ends(d, x, perdure.Failed, "no such address")
			}),
		},
	}
}

// submit submits a task and records the acknowledgement.
func submit[I, O any](d *driver, a *perdure.Activity[I, O], in I, key string) (perdure.Execution[O], error) {
	x, err := a.Submit(d.client(), in, perdure.RawKey(key))
	if err != nil {
		return x, d.cause(0, fmt.Errorf("submit %s: %w", key, err))
	}
	ref := x.Ref
	d.acknowledge("submission of "+ref.String(), func(h *histories) error {
		if len(h.of(ref)) != 1 {
			return wrong("task %s was acknowledged and exists %d times", ref, len(h.of(ref)))
		}
		return nil
	})
	return x, nil
}

// tasksEnd checks the number of dead tasks. It also checks that attempts were lost only where a
// process did not shut down cleanly, and that no two workers ever had the same task.
func tasksEnd(dead int64) func(w *world, h *histories) error {
	return func(w *world, h *histories) error {
		n, err := w.mem.CountDead(context.Background(), store.DeadQuery{Tenant: model.DefaultTenant})
		if err != nil || n != dead {
			return wrong("there are %d dead tasks, want %d: %v", n, dead, err)
		}

		for _, r := range h.runs {
			held := map[string]bool{model.TaskStep: r.row.Start.Worker != ""}
			for i := range r.events {
				e := &r.events[i]
				switch e.Kind { //nolint:exhaustive // the others do not change the claim of a task
				case model.EventTaskScheduled:
					held[e.ID] = e.Worker != ""
				case model.EventTaskClaimed:
					if held[e.ID] {
						return wrong("event %d claims %s, which already has a claim", e.Seq, e.ID)
					}
					held[e.ID] = true
				case model.EventStepCompleted, model.EventStepFailed, model.EventAttemptFailed, model.EventTaskReturned:
					if !held[e.ID] {
						return wrong("event %d (%s) ends a claim of %s, which has no claim", e.Seq, e.Kind, e.ID)
					}
					held[e.ID] = false
				}

				if e.Failure != nil && e.Failure.Type == model.FailureLost && !w.lostLease() {
					return wrong("event %d: an attempt is lost, and no process was: %v", e.Seq, e.Failure)
				}
			}
		}

		return nil
	}
}

// both combines two checks.
func both(a, b func(*world, *histories) error) func(*world, *histories) error {
	return func(w *world, h *histories) error { return errors.Join(a(w, h), b(w, h)) }
}

// taskWrote checks that every saved value was saved once, whichever process died. An attempt
// continues from the last Save of the previous attempt, because a Save that has returned is
// durable. Items that the task wrote before a Save are stored in order. Items after the last Save
// of a lost attempt may be lost, or stored twice because the next attempt writes them again.
func taskWrote(w *world, h *histories) error {
	ctx := context.Background()
	for _, r := range h.runs {
		key := store.RunKey{Shard: r.row.Shard, Run: r.row.Start.Run}
		states, err := w.mem.LoadTaskData(ctx, key, store.StateRange(model.TaskStep))
		if err != nil || len(states) != 1 || string(states[0].Value.Data) != "3" {
			return wrong("states are %v, %v", states, err)
		}
		items, err := w.mem.LoadTaskData(ctx, key, store.StreamRange(model.TaskStep, 0, 0))
		if err != nil {
			return err
		}

		last := -1
		for i := range items {
			it, err := items[i].StreamItem()
			var n int
			if err == nil {
				_, err = fmt.Sscan(string(it.Value.Data), &n)
			}
			if err != nil || it.Position != int64(i+1) || n < last || n > last+1 {
				return wrong("item %d is %s behind %d: %v", it.Position, it.Value.Data, last, err)
			}
			last = n
		}

		lines, err := w.mem.LoadLogs(ctx, key, "", store.LogPlace{}, 1000)
		if err != nil || last != 2 {
			return wrong("the last item is %d: %v", last, err)
		}

		seen := map[string]bool{}
		for i := range lines {
			if seen[lines[i].Text] || i > 0 && lines[i].Text < lines[i-1].Text {
				return wrong("line %q is there twice, or too late", lines[i].Text)
			}
			seen[lines[i].Text] = true
		}
	}

	return nil
}
