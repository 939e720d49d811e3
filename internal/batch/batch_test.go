package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf lists n executions in pages.
type shelf struct {
	api.Client
	n      int
	broken int // the page that cannot be read; 0 for none
	pages  atomic.Int32
}

func (s *shelf) List(_ context.Context, r api.ListRequest) (page api.ListPage, err error) {
	if n := int(s.pages.Add(1)); n == s.broken {
		return page, errors.New("page " + strconv.Itoa(n) + " is torn")
	}
	from := 0

	if r.Cursor != "" {
		if from, err = strconv.Atoi(r.Cursor); err != nil {
			return page, err
		}
	}

	for i := from; i < s.n && i < from+r.Limit; i++ {
		page.Executions = append(page.Executions, api.Description{Start: model.Start{Address: model.Address{Key: fmt.Sprint(i)}}})
	}
	if from+r.Limit < s.n {
		page.Cursor = strconv.Itoa(from + r.Limit)
	}

	return page, nil
}

func TestEveryExecutionOnce(t *testing.T) {
	t.Parallel()
	const n = 450
	var mu sync.Mutex
	done := map[string]int{}
	bad := errors.New("refused")
	var now, most atomic.Int32

	told, failed := 0, 0
	for r := range batch.Run(t.Context(), &shelf{n: n}, api.ListRequest{}, func(_ context.Context, e *api.Description) error {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		mu.Lock()
		defer mu.Unlock()
		if done[e.Start.Address.Key]++; len(done)%3 == 0 {
			return bad
		}
		return nil
	}) {
		if told++; r.Err != nil {
			if failed++; !errors.Is(r.Err, bad) || r.Execution == nil {
				t.Errorf("%+v", r)
			}
		}
	}

	if told != n || failed != n/3 || len(done) != n {
		t.Errorf("%d results, %d errors, %d executions; want %d, %d, %d", told, failed, len(done), n, n/3, n)
	}

	for key, times := range done {
		if times != 1 {
			t.Errorf("%s: %d times", key, times)
		}
	}

	if most.Load() > 16 {
		t.Errorf("%d at once", most.Load())
	}
}

func TestDryRunOnlyLists(t *testing.T) {
	t.Parallel()
	var keys []string
	for r := range batch.Run(t.Context(), &shelf{n: 250}, api.ListRequest{}, nil) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		keys = append(keys, r.Execution.Start.Address.Key)
	}
	if slices.Sort(keys); len(slices.Compact(keys)) != 250 {
		t.Errorf("%d executions", len(keys))
	}
}

// The executions that were listed before the error are processed. The error of the listing is the
// last result.
func TestListingFails(t *testing.T) {
	t.Parallel()
	var results []batch.Result
	for r := range batch.Run(t.Context(), &shelf{n: 450, broken: 2}, api.ListRequest{}, func(context.Context, *api.Description) error { return nil }) {
		results = append(results, r)
	}
	last := results[len(results)-1]
	if len(results) != 201 || last.Execution != nil || last.Err == nil || last.Err.Error() != "page 2 is torn" {
		t.Errorf("%d results, the last one %+v", len(results), last)
	}
}

// A caller that stops iterating stops the batch: no further operation starts, and none is running
// when the loop has ended.
func TestStoppedHalfWay(t *testing.T) {
	t.Parallel()
	var begun, running atomic.Int32
	do := func(ctx context.Context, e *api.Description) error {
		begun.Add(1)
		running.Add(1)
		defer running.Add(-1)
		if e.Start.Address.Key != "0" {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	for r := range batch.Run(t.Context(), &shelf{n: 450}, api.ListRequest{}, do) {
		if r.Execution.Start.Address.Key != "0" || r.Err != nil {
			t.Errorf("%+v", r)
		}
		break
	}

	if running.Load() != 0 || begun.Load() > 17 {
		t.Errorf("%d begun, %d still run", begun.Load(), running.Load())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	gone := errors.New("the operator has gone")
	var last batch.Result
	for last = range batch.Run(ctx, &shelf{n: 450}, api.ListRequest{}, do) {
		cancel(gone)
	}
	if last.Execution != nil || !errors.Is(last.Err, gone) {
		t.Errorf("the last result is %+v", last)
	}
}
