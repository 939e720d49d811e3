package crashwalk_test

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

var ticked = perdure.DeclareWorkflow[int, string]("ticked")

// scheduleScenarios are about schedules. A schedule is an execution whose code is part of the
// engine.
func scheduleScenarios() []*scenario {
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the start of time in a synctest bubble
	end := begin.Add(10 * time.Second)
	ticks := perdure.NewSchedule("s", perdure.Every(3*time.Second), ticked.Job(1), perdure.OverlapAllow, perdure.EndAt(end))
	self := perdure.Ref{Workflow: "perdure.schedule", Key: "s"}
	return []*scenario{{
		// A schedule fires three times and ends. Every tick after its creation starts one
		// execution, wherever a process dies.
		name: "schedule",
		stages: []stage{{
			define: func(*world) perdure.Group {
				return perdure.Group{ticks, ticked.Bind(func(ctx perdure.WorkflowCtx, _ int) (string, error) {
					at, ok := ctx.ScheduledFor()
					if !ok {
						return "", errors.New("the run has no schedule")
					}
					return at.Format(time.RFC3339), nil
				})}
			},
			drive: func(d *driver) error {
				for {
					info, err := ticks.Describe(d.client())
					if err != nil {
						return err
					}
					if len(info.Next) == 0 && len(info.Open) == 0 {
						return nil
					}
					if err := d.sleep(time.Second); err != nil {
						return err
					}
				}
			},
			open: []string{"perdure.schedule/s"},
		}},
		loose: true, // how late a tick is depends on the time of the takeover
		check: func(w *world, h *histories) error {
			var created time.Time
			runs := h.of(self)
			if len(runs) == 0 {
				return wrong("there is no schedule")
			}

			for _, e := range runs[0].events {
				if e.Kind == model.EventUpdateReceived && created.IsZero() {
					created = e.At.Std()
				}
			}

			var want []string
			for at := begin.Add(3 * time.Second); at.Before(end); at = at.Add(3 * time.Second) {
				if at.After(created) {
					want = append(want, at.Format(time.RFC3339))
				}
			}

			if w.strike.kind == nil && len(want) != 3 {
				return wrong("it was created at %s", created)
			}
			if got := ticksOf(h); !slices.Equal(got, want) {
				return wrong("begun for %v, want %v", got, want)
			}

			for _, key := range want {
				if n := len(h.chain[model.Address{Tenant: model.DefaultTenant, Type: "ticked", Key: "s@" + key}]); n != 1 {
					return wrong("tick %s has %d runs", key, n)
				}
			}

			return nil
		},
	}}
}

// ticksOf returns the ticks that have started an execution, in order.
func ticksOf(h *histories) (all []string) {
	for a := range h.chain {
		if a.Type == "ticked" {
			_, tick, _ := strings.Cut(a.Key, "@")
			all = append(all, tick)
		}
	}
	slices.Sort(all)
	return all
}
