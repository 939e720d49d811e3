package remote_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
)

// watcher collects a feed in the background.
type watcher struct {
	w       *world
	began   chan struct{} // closed with the first page
	arrived chan struct{} // signals a page
	end     context.CancelFunc
	done    chan error

	mu      sync.Mutex
	pages   int
	gaps    int
	changes []api.Change
	cursor  string
}

func (w *world) watch(c api.Client, r api.WatchRequest) *watcher {
	w.t.Helper()
	r.Tenant = tenant
	ctx, cancel := context.WithCancel(w.ctx)
	f := &watcher{w: w, began: make(chan struct{}), arrived: make(chan struct{}, 1), end: cancel, done: make(chan error, 1)}
	go func() { f.done <- c.Watch(ctx, r, f.take) }()
	w.t.Cleanup(cancel)
	select {
	case <-f.began:
	case err := <-f.done:
		w.t.Fatal(err)
	}
	return f
}

func (f *watcher) take(p api.ChangePage) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pages++; f.pages == 1 {
		close(f.began)
	}
	if p.Gap {
		f.gaps++
	}
	f.changes = append(f.changes, p.Changes...)
	f.cursor = p.Cursor
	select {
	case f.arrived <- struct{}{}:
	default:
	}
	return nil
}

// until waits for a change that the test looks for, and ends the watch. It returns all changes up
// to and including that change.
func (f *watcher) until(what string, found func(*api.Change) bool) []api.Change {
	f.w.t.Helper()
	for {
		f.mu.Lock()
		all := slices.Clone(f.changes)
		f.mu.Unlock()

		if i := slices.IndexFunc(all, func(c api.Change) bool { return found(&c) }); i >= 0 {
			f.end()
			if err := <-f.done; !fault.Is(err, fault.Canceled) {
				f.w.t.Errorf("the watch ended with %v", err)
			}
			return all[:i+1]
		}

		select {
		case <-f.arrived:
		case err := <-f.done:
			f.w.t.Fatalf("the watch ended before %s: %v", what, err)
		case <-f.w.ctx.Done():
			f.w.t.Fatalf("%s was not told", what)
		}
	}
}

// watches is the part of the scenario that calls Watch.
func watches(w *world) {
	far := w.watch(w.far, api.WatchRequest{ChangeFilter: model.ChangeFilter{Key: "watched"}})
	w.start("watched", `"w"`)
	far.until("the start", func(c *api.Change) bool { return c.Kind == model.ChangeStarted })
	w.until("the server has ended the call", func() bool { return w.calls.ended("Watch") > 0 })

	for _, r := range []api.WatchRequest{
		{Tenant: tenant, Cursor: "nonsense"},
		{Tenant: tenant, ChangeFilter: model.ChangeFilter{Classes: []model.ChangeClass{"weather"}}},
		{Tenant: tenant, ChangeFilter: model.ChangeFilter{Types: make([]string, 101)}},
		{Tenant: tenant, ChangeFilter: model.ChangeFilter{Types: []string{strings.Repeat("x", 300)}}},
		{Tenant: tenant, ChangeFilter: model.ChangeFilter{Key: strings.Repeat("x", 513)}},
		{Tenant: tenant, ChangeFilter: model.ChangeFilter{Statuses: make([]model.Status, 7)}},
	} {
		same(w, func(c api.Client) (int, error) {
			err := c.Watch(w.ctx, r, func(api.ChangePage) error { return errors.New("there is a page") })
			if !fault.Is(err, fault.Invalid) {
				w.t.Errorf("%+v: %v", r, err)
			}
			return 0, err
		})
	}
	if err := w.far.Watch(w.ctx, api.WatchRequest{Tenant: "other"}, nil); !fault.Is(err, fault.Denied) {
		w.t.Errorf("another tenant: %v", err)
	}

	enough := errors.New("enough")
	if err := w.far.Watch(w.ctx, api.WatchRequest{Tenant: tenant}, func(api.ChangePage) error { return enough }); !errors.Is(err, enough) {
		w.t.Errorf("the error of the caller: %v", err)
	}
}

// The feed reports everything that the lists show afterwards, once and in order, although the
// stream breaks again and again.
func TestFeedIsComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	ctx := w.ctx
	local, far := w.watch(w.local, api.WatchRequest{}), w.watch(w.far, api.WatchRequest{})
	statuses := w.watch(w.far, api.WatchRequest{ChangeFilter: model.ChangeFilter{Classes: []model.ChangeClass{model.ClassExecution}, Statuses: []model.Status{model.Failed}}})

	for i := range 24 {
		at := target("shop", fmt.Sprint("k", i))
		w.start(at.Address.Key, `"x"`)
		if i%3 == 0 {
			w.pipe.cut()
		}
		w.must(w.far.Pause(ctx, api.CancelRequest{Target: at, Reason: "wait"}))
		signal := `"lamp"`
		if i%4 == 0 {
			signal = `"burn"`
		}
		w.must(w.far.Signal(ctx, api.SignalRequest{Target: at, Name: "item", Input: text(signal)}))
		w.must(w.far.Resume(ctx, api.CancelRequest{Target: at}))

		switch i % 4 {
		case 1:
			w.must(w.far.Settle(ctx, api.SettleRequest{Target: at, Name: "visa", Value: text(`"ok"`)}))
		case 2:
			w.must(w.far.Cancel(ctx, api.CancelRequest{Target: at}))
		case 3:
			w.must(w.far.Terminate(ctx, api.CancelRequest{Target: at}))
		}
		if i%6 == 0 {
			w.pipe.cut()
		}
		ok[api.Result](w)(w.local.Await(ctx, at))
	}
	ok[api.Result](w)(w.far.Run(ctx, task("good", `"ann"`)))
	ok[api.Result](w)(w.far.Run(ctx, task("bad", `"nobody"`)))
	w.must(second(w.far.Call(ctx, api.CallRequest{Address: address("entity:shelf", "s"), Name: "put", Input: text("3")})))
	w.must(w.far.PauseQueue(ctx, tenant, "post", "stocktaking"))
	w.must(w.far.ResumeQueue(ctx, tenant, "post"))
	w.must(w.far.SetLimit(ctx, tenant, api.Limit{Name: "post", Queue: "post", Numbers: api.Numbers{Concurrency: 2}}, false))
	w.must(w.far.DeleteLimit(ctx, tenant, "post"))
	w.start("end", `"x"`)

	atEnd := func(c *api.Change) bool { return c.Address.Key == "end" }
	want, got := local.until("the end", atEnd), far.until("the end", atEnd)
	if local.gaps+far.gaps > 0 {
		t.Errorf("there are %d gaps in process and %d over the wire", local.gaps, far.gaps)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the feed differs over the wire (-in process +over the wire):\n%s", diff)
	}
	w.wantListed(got)

	failed := statuses.until("the last failure", func(c *api.Change) bool { return c.Address.Key == "k20" })
	if len(failed) != 6 || slices.ContainsFunc(failed, func(c api.Change) bool { return c.Kind != model.ChangeFailed }) {
		t.Errorf("the filter selects %+v", failed)
	}
}

// wantListed compares the last status of every run in the changes with the lists, and looks for
// changes of the other classes.
func (w *world) wantListed(changes []api.Change) {
	w.t.Helper()
	told, listed, others := map[model.RunID]model.Status{}, map[model.RunID]model.Status{}, map[string]bool{}
	seq := map[model.RunID]int64{}
	for i := range changes {
		c := &changes[i]
		if c.Address.Tenant != tenant || c.At == 0 {
			w.t.Errorf("a change without tenant or time: %+v", c)
		}

		if c.Class == model.ClassExecution || c.Task == model.TaskStep && c.Status != 0 {
			if c.Seq != 0 && c.Seq < seq[c.Run] {
				w.t.Errorf("event %d of %s is told after %d", c.Seq, c.Address, seq[c.Run])
			}
			if told[c.Run].Closed() {
				w.t.Errorf("%s is told after the end of its run: %+v", c.Kind, c)
			}
			seq[c.Run], told[c.Run] = max(c.Seq, seq[c.Run]), c.Status
		}

		if c.Class != model.ClassExecution {
			others[fmt.Sprintf("%s %s %s", c.Class, strings.TrimSpace(c.Of+" "+c.Name), c.Kind)] = true
		}
	}

	page := ok[api.ListPage](w)(w.local.List(w.ctx, api.ListRequest{Tenant: tenant, AllRuns: true, Limit: 1000}))
	for i := range page.Executions {
		d := &page.Executions[i]
		listed[d.Start.Run] = d.Outcome.Status
		last := int64(0)
		for _, e := range ok[api.HistoryPage](w)(w.local.History(w.ctx, api.HistoryRequest{Target: api.Target{Address: d.Start.Address, Run: d.Start.Run}, After: -1})).Events {
			if e.Kind != model.EventClosed {
				last = e.Seq
			}
		}
		if d.Outcome.Status.Closed() && seq[d.Start.Run] != last {
			w.t.Errorf("the last event of %s is %d, the feed tells %d", d.Start.Address, last, seq[d.Start.Run])
		}
	}
	if diff := cmp.Diff(listed, told); diff != "" {
		w.t.Errorf("statuses (-listed +told):\n%s", diff)
	}

	want := []string{
		"entity  created", "setting limit post changed", "setting limit post removed", "setting queue post paused", "setting queue post resumed",
		"task mail claimed", "task mail completed", "task mail dead", "task mail failed", "task mail scheduled",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(others))); diff != "" {
		w.t.Errorf("other classes (-want +got):\n%s", diff)
	}
}

// A watch survives the restart of the server in front of the node. It continues from an old cursor,
// or says that it cannot.
func TestWatchContinues(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	far := w.watch(w.far, api.WatchRequest{})
	w.pipe.stop(w.ctx) // ends the watch immediately, although the client does not end it
	w.must(second(w.local.Start(w.ctx, api.StartRequest{Address: address("shop", "a"), Input: text(`"x"`)})))
	w.pipe.start()
	far.until("what happened meanwhile", func(c *api.Change) bool { return c.Address.Key == "a" })
	if far.gaps > 0 {
		t.Errorf("there are %d gaps", far.gaps)
	}

	w.must(second(w.local.Start(w.ctx, api.StartRequest{Address: address("shop", "b"), Input: text(`"x"`)})))
	again := w.watch(w.far, api.WatchRequest{Cursor: far.cursor})
	again.until("what happened before the second watch", func(c *api.Change) bool { return c.Address.Key == "b" })

	other := newWorld(t, program())
	lost := other.watch(other.far, api.WatchRequest{Cursor: far.cursor})
	other.start("c", `"x"`)
	lost.until("what happens after the gap", func(c *api.Change) bool { return c.Address.Key == "c" })
	if lost.gaps != 1 || again.gaps != 0 {
		t.Errorf("%d gaps with the cursor of another server, %d with a good one", lost.gaps, again.gaps)
	}
}

// A caller that reads slowly delays neither the engine nor other watchers.
func TestSlowWatcher(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	release, stuck := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	ended := make(chan error, 1)
	pages := 0
	gap := false
	go func() {
		ended <- w.far.Watch(ctx, api.WatchRequest{Tenant: tenant}, func(p api.ChangePage) error {
			if pages++; pages == 2 {
				close(stuck)
				<-release
			}
			if gap = gap || p.Gap; gap {
				return context.Canceled
			}
			return nil
		})
	}()

	w.start("first", `"x"`)
	<-stuck
	// Cause more changes than the stream and the buffer hold.
	for i := range 5 {
		var many []api.StartRequest
		for k := range 2_000 {
			many = append(many, api.StartRequest{Address: address("nobody", fmt.Sprintf("%d-%d-%s", i, k, strings.Repeat("k", 480))), Input: text(`1`)})
		}
		ok[[]api.StartedReply](w)(w.local.StartMany(w.ctx, many))
	}
	close(release)
	if err := <-ended; !gap {
		t.Errorf("there is no gap: %v", err)
	}
}

// Watchers of one tenant see nothing of another, no matter which cursor they use.
func TestWatchersOfTwoTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	other := w.dial(remote.Config{Token: key, Tenant: "acme"})
	first := w.watch(w.far, api.WatchRequest{})
	first.end()
	<-first.done

	seen := make(chan api.ChangePage, 10)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- other.Watch(ctx, api.WatchRequest{Tenant: "acme", Cursor: first.cursor}, func(p api.ChangePage) error { seen <- p; return nil })
	}()
	if p := <-seen; !p.Gap || len(p.Changes) > 0 {
		t.Errorf("with the cursor of another tenant: %+v", p)
	}
	w.start("secret", `"x"`)
	w.must(w.far.PauseQueue(w.ctx, tenant, "post", "secret"))
	w.must(second(other.Start(w.ctx, api.StartRequest{Address: model.Address{Tenant: "acme", Type: "shop", Key: "own"}, Input: text(`"x"`)})))
	if p := <-seen; len(p.Changes) != 1 || p.Changes[0].Address != (model.Address{Tenant: "acme", Type: "shop", Key: "own"}) {
		t.Errorf("the other tenant sees %+v", p)
	}
	cancel()
	<-ended
}
