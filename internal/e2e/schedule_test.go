package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/payload"
)

var tickJob = perdure.DeclareWorkflow[string, string]("tick-job")

// ticker records the tick of each run and the process that ran it.
type ticker struct {
	mu    sync.Mutex
	ticks []string
}

func (k *ticker) bind(who string) perdure.Definition {
	return tickJob.Bind(func(ctx perdure.WorkflowCtx, in string) (string, error) {
		at, _ := ctx.ScheduledFor()
		return perdure.Do(ctx, "note", func(context.Context) (string, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.ticks = append(k.ticks, at.UTC().Format(time.RFC3339Nano))
			return who + in, nil
		})
	})
}

func (k *ticker) all() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.ticks)
}

// Three processes open at the same time with the same schedule. The schedule is created once, and
// every tick fires once, even if the process that serves the schedule dies.
func TestScheduleAcrossProcesses(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgres")
	s.cfg.LeaseTTL = time.Second
	var k ticker
	every := perdure.NewSchedule("second", perdure.Every(time.Second), tickJob.Job("x"), perdure.OverlapAllow)
	apps := make([]*perdure.App, 3)

	var opening sync.WaitGroup
	for i := range apps {
		opening.Go(func() {
			app, err := s.cfg.Open(t.Context(), s.url, k.bind(fmt.Sprint(i)), every)
			if err != nil {
				t.Error(err)
			}
			apps[i] = app
		})
	}

	opening.Wait()
	for _, app := range apps {
		if app == nil {
			t.FailNow()
		}
		t.Cleanup(func() { _ = app.Close() })
	}

	eventually(t, "three ticks", func() bool { return len(k.all()) >= 3 })
	for i := range 2 { // the shard of the schedule moves
		if err := apps[i].Close(); err != nil {
			t.Error(err)
		}
		n := len(k.all())
		eventually(t, "two more ticks", func() bool { return len(k.all()) >= n+2 })
	}

	app := apps[2]
	if err := every.Pause(caller(t, app), "done"); err != nil {
		t.Fatal(err)
	}
	var info perdure.ScheduleInfo

	eventually(t, "all ended", func() bool {
		var err error
		info, err = every.Describe(caller(t, app))
		return err == nil && len(info.Open) == 0
	})

	got := k.all()
	slices.Sort(got)
	if n := len(slices.Compact(slices.Clone(got))); n != len(got) || int64(n) != info.Fired {
		t.Errorf("%d runs for %d ticks, %d fired: %v", len(got), n, info.Fired, got)
	}
	first, err := time.Parse(time.RFC3339Nano, got[0])
	if err != nil {
		t.Fatal(err)
	}

	for i, text := range got {
		if want := first.Add(time.Duration(i) * time.Second).UTC().Format(time.RFC3339Nano); text != want {
			t.Errorf("tick %d is %s, want %s", i, text, want)
		}
	}
}

// If a schedule cannot follow a trigger, the caller gets a conflict with the reason. A trigger of a
// deleted schedule gets "not found".
func TestTriggersThatAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, "memory")
	over := make(chan struct{})

	job := tickJob.Bind(func(ctx perdure.WorkflowCtx, in string) (string, error) {
		return perdure.Do(ctx, "wait", func(ctx context.Context) (string, error) {
			select {
			case <-over:
			case <-ctx.Done():
			}
			return in, ctx.Err()
		})
	})

	nightly := perdure.NewSchedule("nightly", perdure.Cron("@yearly", ""), tickJob.Job("x"), perdure.OverlapSkip)
	app := s.open(job, nightly)
	defer close(over)
	if err := nightly.Trigger(caller(t, app)); err != nil {
		t.Fatal(err)
	}
	if err := nightly.Trigger(caller(t, app)); !errors.Is(err, perdure.ErrConflict) || !strings.Contains(err.Error(), "starts nothing while tick-job/") {
		t.Errorf("the second trigger: %v", err)
	}
	if err := nightly.Delete(caller(t, app)); err != nil {
		t.Fatal(err)
	}

	if err := nightly.Trigger(caller(t, app)); !errors.Is(err, perdure.ErrNotFound) {
		t.Errorf("a trigger of a schedule that is deleted: %v", err)
	}
}

// An app that asks for pruning deletes schedules that it no longer defines. It keeps schedules that
// other apps have defined.
func TestSchedulesArePruned(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		var k ticker
		define := func(name string) *perdure.Schedule {
			return perdure.NewSchedule(name, perdure.Cron("@yearly", ""), tickJob.Job("x"))
		}

		names := func(app *perdure.App) (all []string) {
			for info, err := range app.Schedules().List(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, info.Name+" of "+info.App)
			}
			slices.Sort(all)
			return all
		}

		s.cfg.Name = "other"
		app := s.open(k.bind(""), define("theirs"))
		s.cfg.Name = "ours"
		app = s.reopen(app, k.bind(""), define("a"), define("b"))
		s.cfg.PruneSchedules = true
		app = s.reopen(app, k.bind(""), define("b"), define("c"))
		if got := strings.Join(names(app), ", "); got != "b of ours, c of ours, theirs of other" {
			t.Errorf("schedules: %s", got)
		}
	})
}

// The input of a job is encrypted and offloaded. When the app opens again, it finds that the
// definition is the same. A sweep keeps the blob, and the job can read it in any process that
// serves the schedule.
func TestScheduleOfASecret(t *testing.T) {
	t.Parallel()
	s := newSite(t, "sqlite")
	s.cfg.Payloads = payload.Codec{Chain: []payload.Transform{payload.Encrypt(ring(t, "k1")), payload.Offload(aged{payload.Dir(t.TempDir())}, 300)}}
	var k ticker
	secret := strings.Repeat("secret ", 100)
	yearly := perdure.NewSchedule("yearly", perdure.Cron("@yearly", ""), tickJob.Job(secret))
	app := s.open(k.bind(""), yearly)
	self := perdure.Ref{Workflow: "perdure.schedule", Key: "yearly"}
	before := len(kindsOf(t, app, self))
	app = s.reopen(app, k.bind(""), yearly)
	if after := len(kindsOf(t, app, self)); after != before {
		t.Errorf("%d events, then %d: the definition was applied again", before, after)
	}
	n, err := app.SweepPayloads(t.Context(), time.Hour)
	equal(t, "blobs that were removed: the one that the second opening made, to compare", n, err, 1)

	for e, err := range app.Histories().Events(t.Context(), self) {
		if err != nil || strings.Contains(string(e.Input)+string(e.Output), "secret") {
			t.Errorf("event %d shows the secret: %v", e.Position, err)
		}
	}

	if err := yearly.Trigger(caller(t, app)); err != nil {
		t.Fatal(err)
	}
	info, err := yearly.Describe(caller(t, app))
	if err != nil || len(info.Last) != 1 {
		t.Fatalf("%+v, %v", info, err)
	}

	job := perdure.Execution[string]{Ref: info.Last[0]}
	got, err := job.Result(caller(t, app))
	// The start of the job is durable, and is still on its way to the shard of the job's key.
	for errors.Is(err, perdure.ErrNotFound) && t.Context().Err() == nil {
		got, err = job.Result(caller(t, app))
	}
	equal(t, "the job", got, err, secret)
}
