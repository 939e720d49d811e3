package faultstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/storetest"
)

// orphan makes the first commit of a lane late, and returns the run that the commit starts.
func orphan(t *testing.T, kind faultstore.Kind, after int) (*storetest.Fixture, *storetest.Node, *faultstore.Store, storetest.Subject) {
	t.Helper()
	f, n, s := setup(t, faultstore.Config{
		Plan: faultstore.FailAt{N: 1, Fault: faultstore.Fault{Kind: kind, After: after}},
	})
	a := f.Subject()
	b := n.Lanes[0].Batch()
	b.Starts = []store.StartRow{a.StartRow()}
	f.Note(b)
	_, err := s.Commit(t.Context(), b)
	if !errors.Is(err, faultstore.ErrInjected) || store.ClassOf(err) != store.Unknown {
		t.Fatalf("%s: %v, want an injected error of class unknown", kind, err)
	}

	b.Lane.Epoch, b.Starts[0].Shard = 77, 77 // the sender may use its batch again
	if s.Orphans().Len() != 1 || len(f.Contents().Executions) != 0 {
		t.Fatalf("%s: %d orphans, contents %+v", kind, s.Orphans().Len(), f.Contents())
	}
	return f, n, s, a
}

func TestLateCommitLandsWhenReleased(t *testing.T) {
	t.Parallel()
	for _, kind := range []faultstore.Kind{faultstore.Late, faultstore.LateBegun} {
		f, _, s, a := orphan(t, kind, 0)
		if err := s.Orphans().Release(1); !errors.Is(err, faultstore.ErrNoOrphan) {
			t.Errorf("release of nothing: %v", err)
		}
		if err := s.Orphans().Release(0); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		f.Want(kind.String(), []store.Execution{a.Execution()}, f.Contents().Executions)
		if s.Orphans().Len() != 0 || s.Orphans().CountLanded() != 1 || s.Orphans().CountExcluded() != 0 {
			t.Errorf("%s: %d pending, %d landed", kind, s.Orphans().Len(), s.Orphans().CountLanded())
		}
	}
}

func TestLateCommitIsExcludedByRefence(t *testing.T) {
	t.Parallel()
	f, n, s, _ := orphan(t, faultstore.Late, 0)
	_, landed, err := s.Refence(t.Context(), n.Lanes[0].Ref)
	if err != nil || landed != 0 {
		t.Fatalf("refence: landed %d, %v; want 0", landed, err)
	}
	if err := s.Orphans().Release(0); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the orphan: %v, want fenced", err)
	}
	if got := f.Contents().Executions; len(got) != 0 || s.Orphans().CountExcluded() != 1 {
		t.Errorf("executions %v, %d excluded", got, s.Orphans().CountExcluded())
	}
}

func TestBegunCommitHoldsItsFence(t *testing.T) {
	t.Parallel()
	calls := map[string]func(t *testing.T, n *storetest.Node, s *faultstore.Store){
		"refence": func(t *testing.T, n *storetest.Node, s *faultstore.Store) {
			t.Helper()
			if _, landed, err := s.Refence(t.Context(), n.Lanes[0].Ref); err != nil || landed != 1 {
				t.Errorf("landed %d, %v; want 1", landed, err)
			}
		},
		"fence node": func(t *testing.T, n *storetest.Node, s *faultstore.Store) {
			t.Helper()
			if ok, err := s.FenceNode(t.Context(), store.FenceRequest{Node: n.ID, Epoch: n.Epoch, Proven: true}); err != nil || !ok {
				t.Errorf("fenced %v, %v", ok, err)
			}
		},
		"unregister": func(t *testing.T, n *storetest.Node, s *faultstore.Store) {
			t.Helper()
			if err := s.Unregister(t.Context(), n.ID, n.Epoch); err != nil {
				t.Error(err)
			}
		},
		"register again": func(t *testing.T, n *storetest.Node, s *faultstore.Store) {
			t.Helper()
			if _, err := s.Register(t.Context(), n.Info, 1, 1); err != nil {
				t.Error(err)
			}
		},
		"commit": func(t *testing.T, n *storetest.Node, s *faultstore.Store) {
			t.Helper()
			if _, err := s.Commit(t.Context(), &store.Batch{Lane: n.Lanes[0].Ref, Number: 2}); err != nil {
				t.Error(err)
			}
		},
	}
	for name, call := range calls {
		f, n, s, a := orphan(t, faultstore.LateBegun, 0)
		// Reads and commits of other lanes do not wait for the late commit.
		if _, err := s.Members(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), n.Lanes[1].Batch()); err != nil || s.Orphans().Len() != 1 {
			t.Fatalf("%s: commit of another lane: %v, %d orphans", name, err, s.Orphans().Len())
		}

		// Another process that shares the orphans waits for the late commit too.
		other := faultstore.Wrap(f.Store, faultstore.Config{Orphans: s.Orphans(), KeepInner: true})
		s.Kill()
		call(t, n, other)
		f.Want(name, []store.Execution{a.Execution()}, f.Contents().Executions)
		if s.Orphans().Len() != 0 || s.Orphans().CountLanded() != 1 {
			t.Errorf("%s: %d pending, %d landed", name, s.Orphans().Len(), s.Orphans().CountLanded())
		}
	}
}

func TestLateCommitReleasesItself(t *testing.T) {
	t.Parallel()
	f, _, s, a := orphan(t, faultstore.Late, 3)
	for i := range 3 {
		if got := s.Orphans().Len(); got != 1 {
			t.Fatalf("%d orphans before call %d", got, i+1)
		}
		if _, err := s.Members(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.Want("executions", []store.Execution{a.Execution()}, f.Contents().Executions)
}

func TestDroppedCommitNeverLands(t *testing.T) {
	t.Parallel()
	f, n, s, _ := orphan(t, faultstore.LateBegun, 0)
	if err := s.Orphans().Drop(0); err != nil {
		t.Fatal(err)
	}
	if err := s.Orphans().Drop(0); !errors.Is(err, faultstore.ErrNoOrphan) {
		t.Errorf("drop of nothing: %v", err)
	}
	if _, landed, err := s.Refence(t.Context(), n.Lanes[0].Ref); err != nil || landed != 0 || len(f.Contents().Executions) != 0 {
		t.Errorf("landed %d, %v", landed, err)
	}
}

// lane is the simplest correct committer. It relies only on the promises of the interface
// store.Store.
type lane struct {
	s     *faultstore.Store
	ref   store.LaneRef
	last  int64 // the last batch that is known to have landed
	acked int64
}

// send makes a batch durable. It returns false if the process cannot continue.
func (l *lane) send(t *testing.T, fill func(b *store.Batch)) bool {
	for {
		b := &store.Batch{Lane: l.ref, Number: l.last + 1}
		fill(b)
		_, err := l.s.Commit(t.Context(), b)
		if err == nil {
			l.last++
			l.acked++
			return true
		}

		if errors.Is(err, faultstore.ErrCrashed) {
			return false
		}

		switch store.ClassOf(err) {
		case store.Retryable, store.Away:
			continue
		case store.Unknown:
		default:
			t.Errorf("batch %d: %v", b.Number, err)
			return false
		}

		for {
			epoch, landed, err := l.s.Refence(t.Context(), l.ref)
			if err == nil {
				l.ref.Epoch = epoch
				if landed > l.last {
					l.last = landed
					l.acked++
					return true
				}
				break
			}
			if errors.Is(err, faultstore.ErrCrashed) || store.ClassOf(err) == store.Fenced {
				// the answer to its own Refence was lost, so the lane does not know its epoch
				return false
			}
		}
	}
}

// TestLaneSurvivesBadLuck runs one lane per seed through all kinds of faults, with a takeover at
// the end. Batches that the store has confirmed are applied exactly once and in order, and no batch
// of the lane is applied after the takeover.
func TestLaneSurvivesBadLuck(t *testing.T) {
	t.Parallel()
	rates := faultstore.Rates{
		Default: faultstore.Rate{FailBefore: 0.1, Slow: 0.1},
		Methods: map[faultstore.Method]faultstore.Rate{
			faultstore.Commit: {FailBefore: 0.1, FailAfter: 0.1, CrashBefore: 0.02, CrashAfter: 0.02, Late: 0.15, LateBegun: 0.15, MaxAfter: 4},
		},
	}

	total := make(map[faultstore.Kind]int64)
	landed, excluded := 0, 0
	for seed := range uint64(300) {
		run := func() string {
			inner := memory.New(memory.Options{Shards: 16, Cluster: "test"})
			f := storetest.New(t, inner)
			n, a := f.Join(1), f.Subject()
			s := faultstore.Wrap(inner, faultstore.Config{Plan: faultstore.NewSeeded(seed, rates), KeepInner: true})

			l := &lane{s: s, ref: n.Lanes[0].Ref}
			for i := range int64(20) {
				fill := func(b *store.Batch) { b.Events = []store.EventRow{a.Event(i + 1)} }
				if !l.send(t, fill) {
					break
				}
			}

			successor := faultstore.Wrap(inner, faultstore.Config{Orphans: s.Orphans(), KeepInner: true})
			if ok, err := successor.FenceNode(t.Context(), store.FenceRequest{Node: n.ID, Epoch: n.Epoch, Proven: true}); !ok || err != nil {
				t.Fatalf("seed %d: takeover: %v, %v", seed, ok, err)
			}

			load := func() []model.Event {
				events, err := inner.LoadEvents(t.Context(), a.RunKey, 0, 1000, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				return events
			}

			events := load()
			s.Orphans().ReleaseAll()
			if after := load(); len(after) != len(events) {
				t.Fatalf("seed %d: %d events at the takeover, %d afterwards", seed, len(events), len(after))
			}

			for i, e := range events {
				if e.Seq != int64(i+1) {
					t.Fatalf("seed %d: event %d at place %d", seed, e.Seq, i)
				}
			}

			if n := int64(len(events)); n < l.acked || n > l.acked+1 {
				t.Fatalf("seed %d: %d applied, %d acknowledged", seed, n, l.acked)
			}
			c := s.Counts()
			for _, k := range faultstore.Kinds() {
				total[k] += c.Of(faultstore.Any, k)
			}
			landed, excluded = landed+s.Orphans().CountLanded(), excluded+s.Orphans().CountExcluded()

			return fmt.Sprint(c, l.acked, len(events))
		}
		if first, second := run(), run(); first != second {
			t.Fatalf("seed %d is not deterministic:\n%s\n%s", seed, first, second)
		}
	}

	for _, k := range faultstore.Kinds() {
		if total[k] == 0 && k != faultstore.SlowReply {
			t.Errorf("no fault of kind %s", k)
		}
	}

	if landed == 0 || excluded == 0 {
		t.Errorf("%d orphans landed and %d were excluded: both must happen", landed, excluded)
	}
}
