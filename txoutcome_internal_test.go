package perdure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/userdb"
)

func TestExpiredOutcomes(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := time.Now()

	run := func(s model.Status, age time.Duration) *api.Description {
		return &api.Description{Outcome: model.Outcome{Status: s, At: model.TimeOf(now.Add(-age))}}
	}
	for name, c := range map[string]struct {
		d    *api.Description
		err  error
		last time.Duration
		want bool
	}{
		"open for a year":               {run(model.Running, 0), nil, 365 * day, false},
		"closed yesterday, acted early": {run(model.Completed, day), nil, 365 * day, false},
		"closed eight days ago":         {run(model.Completed, 8*day), nil, 9 * day, true},
		"may be retried":                {run(model.Failed, 8*day), nil, 9 * day, false},
		"unknown, acted last week":      {&api.Description{}, fault.New(fault.NotFound, "gone"), 8 * day, false},
		"unknown for long":              {&api.Description{}, fault.New(fault.NotFound, "gone"), 31 * day, true},
	} {
		if got, err := isExpired(c.d, c.err, now.Add(-c.last), now); got != c.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}

	if _, err := isExpired(&api.Description{}, errors.New("away"), now, now); err == nil {
		t.Error("an error of the engine decides nothing")
	}
}

// runs is a backend that knows two runs of an execution.
type runs struct {
	api.Backend
	was, is model.Status
}

func (r runs) Describe(_ context.Context, t api.Target) (api.Description, error) {
	if t.Run.IsZero() {
		return api.Description{Current: true, Outcome: model.Outcome{Status: r.is}}, nil
	}
	return api.Description{Outcome: model.Outcome{Status: r.was}}, nil
}

// The sweep must keep the outcomes of a failed run while the run that retries the failed run is
// open.
func TestOutcomesOfARetriedRun(t *testing.T) {
	t.Parallel()
	for was, want := range map[model.Status]model.Status{
		model.Failed: model.Running, model.Canceled: model.Running, model.Terminated: model.Running, model.Completed: model.Completed, model.Continued: model.Continued,
	} {
		h := &host{backend: runs{was: was, is: model.Running}}
		if d, err := h.decidingRun(t.Context(), api.Target{Run: model.RunID{1}}); err != nil || d.Outcome.Status != want {
			t.Errorf("a run that has %s is kept for one that is %s, %v", was, d.Outcome.Status, err)
		}
	}
}

// gone is a backend that knows only the current run of an execution.
type gone struct {
	api.Backend
	current *api.Description
}

func (g gone) Describe(_ context.Context, t api.Target) (api.Description, error) {
	if !t.Run.IsZero() || g.current == nil {
		return api.Description{}, fault.New(fault.NotFound, "gone")
	}
	return *g.current, nil
}

// The sweep must keep the outcomes of a deleted run while the run that continues the deleted run is
// open.
func TestOutcomesOfARunThatHasLeft(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	run, now := model.RunID{1}, time.Now()

	next := func(s model.Status, earlier ...model.RunID) *api.Description {
		return &api.Description{Current: true, Start: model.Start{Earlier: earlier}, Outcome: model.Outcome{Status: s, At: model.TimeOf(now.Add(-8 * day))}}
	}
	for name, c := range map[string]struct {
		current *api.Description
		want    bool
	}{
		"nobody is there":             {nil, true},
		"another run, on its own":     {next(model.Running), true},
		"a retry that runs":           {next(model.Running, model.RunID{2}, run), false},
		"a retry that can be retried": {next(model.Failed, run), false},
		"a retry that has completed":  {next(model.Completed, run), true},
	} {
		h := &host{backend: gone{current: c.current}}
		d, err := h.decidingRun(t.Context(), api.Target{Run: run})
		if got, err := isExpired(&d, err, now.Add(-31*day), now); got != c.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// ledger is a database that has the outcome of one run, and a clock of its own.
type ledger struct {
	now     time.Time
	run     model.RunID
	removed int
}

func (l *ledger) Exec(_ context.Context, query string, _ ...any) (int64, error) {
	if !strings.HasPrefix(query, "delete from perdure_outcomes") {
		return 0, fmt.Errorf("unexpected: %s", query)
	}
	l.removed++
	return 1, nil
}

func (l *ledger) QueryRow(_ context.Context, query string, args ...any) userdb.Row {
	return answer(func(dest ...any) error {
		switch to := dest[0].(type) {
		case *bool: // whether the table is there
			*to = true
		case *int64:
			*to = l.now.UnixMilli()
		case *string:
			if *to = "3.50.0"; len(args) > 0 {
				*to = fmt.Sprintf(`[{"run": %q, "execution": "w/k", "at": %d}]`, l.run, l.now.Add(-300*24*time.Hour).UnixMilli())
			}
		default:
			return fmt.Errorf("unexpected: %s", query)
		}
		return nil
	})
}

func (l *ledger) Commit(context.Context) error   { return nil }
func (l *ledger) Rollback(context.Context) error { return nil }
func (l *ledger) Raw() any                       { return l }

type answer func(dest ...any) error

func (a answer) Scan(dest ...any) error { return a(dest...) }

// closedAt is a backend whose runs completed at a given time by the clock of the engine.
type closedAt struct {
	api.Backend
	at time.Time
}

func (c closedAt) Describe(context.Context, api.Target) (api.Description, error) {
	return api.Description{Current: true, Outcome: model.Outcome{Status: model.Completed, At: model.TimeOf(c.at)}}, nil
}

// The sweep removes an outcome when the run has been closed for a week, both by the clock of the
// database and by the clock of the process. So one wrong clock cannot remove an outcome too early.
func TestSweepGoesByTheClockThatIsBehind(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := time.Now()

	for name, c := range map[string]struct {
		closed            time.Duration // how long ago the run closed, by the clock of the engine
		database, process time.Duration // how far their clocks are ahead of the engine
		want              int
	}{
		"closed for six days":                     {6 * day, 0, 0, 0},
		"closed for eight days":                   {8 * day, 0, 0, 1},
		"the database is a month ahead":           {6 * day, 30 * day, 0, 0},
		"the process is a month ahead":            {6 * day, 0, 30 * day, 0},
		"the database is behind":                  {8 * day, -2 * day, 0, 0},
		"the process is behind":                   {8 * day, 0, -2 * day, 0},
		"the database is behind, closed for long": {10 * day, -2 * day, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &ledger{now: now.Add(c.database), run: model.RunID{6: 0x70, 8: 0x80, 15: 1}}
			db := userdb.New(userdb.Source{Dialect: userdb.SQLite, Begin: func(context.Context) (userdb.Tx, error) { return l, nil }})
			if err := db.Open(t.Context(), userdb.Outcomes); err != nil {
				t.Fatal(err)
			}
			a := &App{host: &host{backend: closedAt{at: now.Add(-c.closed)}}}
			if _, err := a.sweepOnce(t.Context(), db, now.Add(c.process)); err != nil || l.removed != c.want {
				t.Errorf("%d removals, want %d, %v", l.removed, c.want, err)
			}
		})
	}
}
