package engine

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// endless is a store whose runs have three pages.
type endless struct{ store.Store }

// LoadRun returns the first page.
//
//arch:parameters given by store.Store
func (endless) LoadRun(context.Context, model.ShardID, model.Address, model.RunID, int, int) (store.Run, error) {
	return store.Run{Execution: &store.Execution{}, Events: []model.Event{{Seq: 1}}, More: true}, nil
}

// LoadEvents returns the further pages.
//
//arch:parameters given by store.Store
func (endless) LoadEvents(_ context.Context, _ store.RunKey, after int64, _, _ int) ([]model.Event, error) {
	if after == 3 {
		return nil, nil
	}
	return []model.Event{{Seq: after + 1}}, nil
}

// Readers wait until the lane has taken earlier results. A reader waits before a further page if
// another read already has several pages, and before any page if there are many results.
func TestOneLargeReadAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := newPages()
		done := make(chan *pageRead, openReads+1)
		for range openReads + 1 {
			go func() {
				r := p.open(ctx)
				if r == nil {
					return
				}
				if got := read(ctx, endless{}, lane.Load{Kind: lane.LoadRun}, 0, r.grow); got.Err == nil && len(got.Events) == 3 {
					done <- r
				}
			}()
		}

		synctest.Wait()
		if len(done) != 1 || len(p.results) != openReads {
			t.Fatalf("%d reads of several pages have ended, %d are open", len(done), len(p.results))
		}

		for range openReads {
			(<-done).close()
			synctest.Wait()
			if len(done) != 1 {
				t.Fatalf("%d reads of several pages have ended", len(done))
			}
		}

		(<-done).close()
		first, second := p.open(ctx), p.open(ctx)
		if !first.grow() || len(p.results) != 2 || len(p.large) != 1 {
			t.Fatal("what was read is still counted")
		}
		ended := make(chan bool)
		go func() { ended <- second.grow() }()
		synctest.Wait()
		cancel()
		if <-ended {
			t.Error("it has grown although another one is large")
		}
	})
}

// shelf is a store with runs by their key. One run cannot be decoded, and one has several pages.
type shelf struct {
	store.Store
	damaged, long string
	together      int // reads of several runs
}

func (s *shelf) run(key string, whole bool) (store.Run, error) {
	if key == s.damaged {
		return store.Run{}, fault.New(fault.Corrupt, "run %s", key)
	}
	x := &store.Execution{Start: model.Start{Address: model.Address{Key: key}}}
	return store.Run{Execution: x, Events: []model.Event{{Seq: 1, Name: key}}, More: key == s.long && (whole || s.together > 0)}, nil
}

// LoadRuns returns the first three runs.
func (s *shelf) LoadRuns(_ context.Context, keys []store.AddressKey, _, _ int) (runs []store.Run, err error) {
	s.together++
	for _, k := range keys[:min(3, len(keys))] {
		r, err := s.run(k.Address.Key, false)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// LoadRun returns one run.
//
//arch:parameters given by store.Store
func (s *shelf) LoadRun(_ context.Context, _ model.ShardID, a model.Address, _ model.RunID, _, _ int) (store.Run, error) {
	return s.run(a.Key, true)
}

// LoadEvents returns the second and last page of a run.
//
//arch:parameters given by store.Store
func (s *shelf) LoadEvents(_ context.Context, _ store.RunKey, after int64, _, _ int) ([]model.Event, error) {
	if after > 1 {
		return nil, nil
	}
	return []model.Event{{Seq: 2, Name: s.long}}, nil
}

// Runs that are read together have the same results as runs that are read alone. A run that cannot
// be decoded does not make the others fail, and a run with several pages has all of its pages.
func TestRunsAreReadTogether(t *testing.T) {
	t.Parallel()
	s, read := &shelf{damaged: "7", long: "4"}, map[string]int{}
	var left []lane.Load
	for i := range 12 {
		left = append(left, lane.Load{ID: uint64(i), Kind: lane.LoadRun, Address: model.Address{Key: strconv.Itoa(i)}})
	}

	for len(left) > 0 {
		page := ReadRuns(t.Context(), s, left)
		n := len(page.Read) + len(page.Long)
		if n == 0 || n > len(left) {
			t.Fatalf("%d results for %d runs", n, len(left))
		}
		for i := range page.Long {
			page.Read, page.Results = append(page.Read, page.Long[i]), append(page.Results, Read(t.Context(), s, page.Long[i], 0))
		}
		for i, r := range page.Results {
			key, want := page.Read[i].Address.Key, 1
			if key == s.damaged {
				if !fault.Is(r.Err, fault.Corrupt) {
					t.Errorf("run %s: %+v", key, r)
				}
				continue
			}
			if key == s.long {
				want = 2
			}
			if r.Err != nil || r.Execution.Start.Address.Key != key || len(r.Events) != want || r.Events[want-1].Name != key {
				t.Errorf("run %s: %+v", key, r)
			}
			read[key]++
		}
		left = left[n:]
	}
	if s.together < 4 || s.together > 12 || len(read) != 11 {
		t.Errorf("%d reads of several runs, %v", s.together, read)
	}
}

// lengthy is a store in which every run has more events than one run may have in a shared page.
type lengthy struct {
	endless
	together int
}

// LoadRuns returns the beginnings of the runs.
func (s *lengthy) LoadRuns(_ context.Context, keys []store.AddressKey, _, _ int) ([]store.Run, error) {
	s.together++
	runs := make([]store.Run, len(keys))
	for i := range runs {
		runs[i] = store.Run{Execution: &store.Execution{}, Events: []model.Event{{Seq: 1}}, More: true}
	}
	return runs, nil
}

// Some runs are too long to be read together. The reader finds that out with one read, not with one
// read for each of them.
func TestLongRunsAreTriedTogetherOnce(t *testing.T) {
	t.Parallel()
	s := &lengthy{}
	var left []lane.Load
	for i := range mostTogether {
		left = append(left, lane.Load{ID: uint64(i), Kind: lane.LoadRun})
	}
	long := 0
	for len(left) > 0 {
		page := ReadRuns(t.Context(), s, left)
		long += len(page.Long)
		left = left[len(page.Read)+len(page.Long):]
	}
	if s.together != 1 || long != mostTogether {
		t.Errorf("%d long runs, and %d reads of several runs", long, s.together)
	}
}
