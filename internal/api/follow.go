package api

import (
	"cmp"
	"context"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Runs reads and awaits runs. FollowRuns needs it.
type Runs interface {
	// Await waits for the end of the run that the target names.
	Await(ctx context.Context, t Target) (Result, error)
	// StartOf returns the start of a run, or of the current run if the target names none.
	StartOf(ctx context.Context, t Target) (model.Start, error)
}

// maxLaterStarts is how many later starts of a key LastRun looks behind.
const maxLaterStarts = 100

// FollowRuns waits for the end of a run and of the runs that continue it: after continue-as-new, a
// retry or a reset. Unlike Await without a run, it does not wait for a run of a later start of the
// key. If the target names no run, FollowRuns is Await.
func FollowRuns(ctx context.Context, runs Runs, t Target) (Result, error) {
	for from := t; ; {
		end, err := runs.Await(ctx, t)
		switch {
		case t.Run.IsZero(), err != nil && !fault.Is(err, fault.NotFound):
			return end, err
		case err == nil && end.Outcome.Status == model.Continued && !end.Outcome.Next.IsZero():
			t.Run = end.Outcome.Next
			continue
		}

		// An operator may have retried or reset the closed run. A run that no longer exists may
		// have been removed after another run had continued it.
		gone, known := err != nil, t
		if gone {
			known = from
		}
		last, lookErr := LastRun(ctx, runs, known)

		switch {
		case gone && (lookErr != nil || last == t.Run || last == from.Run):
			return end, err
		case fault.Is(lookErr, fault.NotFound) || last == t.Run:
			return end, nil
		case lookErr != nil:
			return Result{}, lookErr
		}
		t.Run = last
	}
}

// LastRun returns the last run of the chain of a run: of the runs that continue, retry or reset the
// same first run. It returns the run itself if it cannot find a later one, because runs between
// them have been removed.
func LastRun(ctx context.Context, runs Runs, t Target) (model.RunID, error) {
	at := Target{Address: t.Address}
	current, err := runs.StartOf(ctx, at)
	if err != nil || current.Run == t.Run || current.First == t.Run {
		return current.Run, err
	}
	own, err := runs.StartOf(ctx, t)
	if err != nil {
		return model.RunID{}, err
	}

	// The current run may belong to a later start. So go back from start to start: the first run of
	// a chain names the last run of the chain before it.
	for range 2 * maxLaterStarts {
		if firstRun(&current) == firstRun(&own) {
			return current.Run, nil
		}
		if at.Run = cmp.Or(current.First, current.Replaced); at.Run.IsZero() {
			break
		}
		current, err = runs.StartOf(ctx, at)
		if fault.Is(err, fault.NotFound) {
			break
		}
		if err != nil {
			return model.RunID{}, err
		}
	}
	return own.Run, nil
}

// firstRun returns the first run of the chain of a run.
func firstRun(s *model.Start) model.RunID { return cmp.Or(s.First, s.Run) }

// ClientRuns returns the runs of a client.
func ClientRuns(c Client) Runs { return clientRuns{c} }

type clientRuns struct{ Client }

func (c clientRuns) StartOf(ctx context.Context, t Target) (model.Start, error) {
	d, err := c.Describe(ctx, t)
	return d.Start, err
}
