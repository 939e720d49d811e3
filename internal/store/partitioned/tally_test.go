package partitioned_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/partitioned"
	"github.com/perdure/perdure/internal/store/storetest"
)

// counted is a part that counts the executions that lists return, and its tallies.
type counted struct {
	store.Part
	listed, tallies *atomic.Int64
}

func (c counted) List(ctx context.Context, q store.Query) (store.Page, error) {
	p, err := c.Part.List(ctx, q)
	c.listed.Add(int64(len(p.Executions)))
	return p, err
}

func (c counted) Tally(ctx context.Context, q store.Query, by store.TallyBy) ([]store.TallyGroup, error) {
	c.tallies.Add(1)
	return c.Part.Tally(ctx, q, by)
}

// A tally that stops at its bound asks the parts for tallies. It reads few whole executions, which
// have inputs of up to 2 MiB, however the starts are spread over time.
func TestTallyReadsFewExecutions(t *testing.T) {
	t.Parallel()
	const each, bound = 1500, 1000
	for name, at := range map[string]func(part, i int) model.Time{
		"alternating":            func(part, i int) model.Time { return model.Time(1e12 + (2*i+part)*1e6) },
		"bursts of a day":        func(part, i int) model.Time { return model.Time(1e15 + i/500*86_400e6 + i%500*1000 + part) },
		"one part after another": func(part, i int) model.Time { return model.Time(1e12 + (part*each+i)*1e6) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var listed, tallies atomic.Int64
			o := memory.Options{Shards: 2, Groups: []model.Group{{Name: "eu", Shards: 1}}}
			s, err := partitioned.New(counted{memory.New(o), &listed, &tallies},
				[]partitioned.Member{{Name: "eu", Groups: []string{"eu"}, Store: counted{memory.New(o), &listed, &tallies}}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			f := storetest.New(t, s)
			n := f.Join(2)
			n.Acquire(0, 1)
			c := &scene{Fixture: f}
			for part := range 2 {
				n.Lanes[part].Write(func(b *store.Batch) {
					for i := range each {
						row := c.row(model.ShardID(part))
						row.Start.At = at(part, i)
						row.Start.Address.Type = []string{"home", "eu"}[part]
						b.Starts = append(b.Starts, row)
					}
				})
			}

			q := store.Query{Tenant: model.DefaultTenant, AllRuns: true, Limit: bound}
			want := map[string]int64{}
			for left := bound; left > 0; left -= 100 {
				page := q
				page.Limit, page.After = 100, q.After
				rows, err := s.List(t.Context(), page)
				if err != nil {
					t.Fatal(err)
				}
				for i := range rows.Executions {
					x := &rows.Executions[i]
					want[x.Start.Address.Type]++
					q.After = store.PageMark{Started: x.Start.At, Run: x.Start.Run}
				}
			}
			q.After = store.PageMark{}

			listed.Store(0)
			tallies.Store(0)
			begun := time.Now()
			groups, err := s.Tally(t.Context(), q, store.TallyBy{Workflow: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d tallies and %d executions in %s", tallies.Load(), listed.Load(), time.Since(begun))
			for _, g := range groups {
				if g.Count != want[g.Workflow] {
					t.Errorf("%d executions of %s, want %d", g.Count, g.Workflow, want[g.Workflow])
				}
				delete(want, g.Workflow)
			}
			if len(want) > 0 {
				t.Errorf("the tally lacks %v", want)
			}
			if n := listed.Load(); n > bound/4 {
				t.Errorf("the tally has read %d whole executions, want at most %d", n, bound/4)
			}
		})
	}
}
