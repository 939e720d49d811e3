package api_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// shelf has the runs of a key by their number, and the number of the current run.
type shelf struct {
	runs    map[byte]api.Description
	current byte
}

func id(n byte) model.RunID {
	if n == 0 {
		return model.RunID{}
	}
	return model.RunID{n}
}

// link is a run by its number: the first run of its chain, the run whose key it took, and the run
// that continues it.
type link struct{ run, first, replaced, next byte }

// add adds a run that has ended.
func (s *shelf) add(l link) {
	d := api.Description{Start: model.Start{Run: id(l.run), First: id(l.first), Replaced: id(l.replaced)}}
	d.Outcome = model.Outcome{Status: model.Failed, Next: id(l.next)}
	if l.next != 0 {
		d.Outcome.Status = model.Continued
	}
	s.runs[l.run], s.current = d, l.run
}

func (s *shelf) find(t api.Target) (api.Description, error) {
	run := s.current
	if !t.Run.IsZero() {
		run = t.Run[0]
	}
	d, ok := s.runs[run]
	if !ok {
		return d, fault.New(fault.NotFound, "run %d", run)
	}
	return d, nil
}

func (s *shelf) Await(_ context.Context, t api.Target) (api.Result, error) {
	d, err := s.find(t)
	return api.Result{Run: d.Start.Run, Outcome: d.Outcome}, err
}

func (s *shelf) StartOf(_ context.Context, t api.Target) (model.Start, error) {
	d, err := s.find(t)
	return d.Start, err
}

// history returns runs 1 to 3, which are one chain, the retry 4 of the last of them, and runs 5 to
// 7 of two later starts.
func history() *shelf {
	s := &shelf{runs: map[byte]api.Description{}}
	for _, l := range []link{
		{run: 1, next: 2},
		{run: 2, first: 1, next: 3},
		{run: 3, first: 1},
		{run: 4, first: 1},
		{run: 5, replaced: 4, next: 6},
		{run: 6, first: 5},
		{run: 7, replaced: 6},
	} {
		s.add(l)
	}
	return s
}

// A caller that follows a run gets the end of the last run that continues or retries it, and never
// the end of a later start. That is true as long as the runs between them exist.
func TestFollowRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		removed []byte
		current byte
		run     byte
		want    byte // 0 for an error
	}{
		"the first run, retried, before two starts":      {nil, 7, 1, 4},
		"a run of the chain":                             {nil, 7, 2, 4},
		"the failed run":                                 {nil, 7, 3, 4},
		"the retry":                                      {nil, 7, 4, 4},
		"the chain of the second start":                  {nil, 7, 5, 6},
		"the current run":                                {nil, 7, 7, 7},
		"the retry is the current run":                   {nil, 4, 1, 4},
		"the first run was removed":                      {[]byte{1}, 4, 1, 4},
		"a run in between was removed":                   {[]byte{2}, 4, 1, 4},
		"the first run was removed, before a start":      {[]byte{1}, 7, 1, 0},
		"the start in between was removed":               {[]byte{5, 6}, 7, 3, 3},
		"the whole chain was removed":                    {[]byte{1, 2, 3, 4}, 7, 1, 0},
		"everything was removed":                         {[]byte{1, 2, 3, 4, 5, 6, 7}, 7, 1, 0},
		"the run that continues was removed with others": {[]byte{2, 3, 4, 5, 6}, 7, 1, 0},
	} {
		s := history()
		s.current = c.current
		for _, run := range c.removed {
			delete(s.runs, run)
		}

		end, err := api.FollowRuns(t.Context(), s, api.Target{Run: id(c.run)})
		if c.want == 0 {
			if !fault.Is(err, fault.NotFound) {
				t.Errorf("%s: run %v, %v; want that it does not exist", name, end.Run[0], err)
			}
			continue
		}
		if err != nil || end.Run != id(c.want) {
			t.Errorf("%s: run %v, %v; want %d", name, end.Run[0], err, c.want)
		}
	}
}

// A run that is removed with its execution while a caller looks for its retry has the end that the
// caller has seen.
func TestFollowRunsDuringADelete(t *testing.T) {
	t.Parallel()
	s := history()
	s.current = 3
	delete(s.runs, 4)
	kept := s.runs[3]
	end, err := api.FollowRuns(t.Context(), vanishing{s}, api.Target{Run: id(3)})
	if err != nil || end.Run != kept.Start.Run {
		t.Errorf("%v, %v", end, err)
	}
}

// vanishing removes all runs when the wait for one of them has ended.
type vanishing struct{ *shelf }

func (v vanishing) Await(ctx context.Context, t api.Target) (api.Result, error) {
	r, err := v.shelf.Await(ctx, t)
	clear(v.runs)
	return r, err
}
