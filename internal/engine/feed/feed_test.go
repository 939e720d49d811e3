package feed_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/engine/feed"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// desk is a hub with a clock that the test sets.
type desk struct {
	*feed.Hub
	t *testing.T

	mu  sync.Mutex
	now time.Duration
}

func newDesk(t *testing.T, change ...func(*feed.Config)) *desk {
	d := &desk{t: t}
	cfg := feed.Config{Now: func() time.Duration {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.now
	}}
	for _, f := range change {
		f(&cfg)
	}
	d.Hub = feed.New(cfg)
	d.Claim([]model.ShardID{0})
	return d
}

func (d *desk) pass(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now += by
}

func (d *desk) watch(tenant, cursor string) *feed.Watcher {
	d.t.Helper()
	w, err := d.Watch(tenant, model.ChangeFilter{}, cursor)
	if err != nil {
		d.t.Fatal(err)
	}
	return w
}

// next returns the next page as a text. The page must be there.
func (d *desk) next(w *feed.Watcher) (text, cursor string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	page, err := w.Next(ctx)
	if err != nil {
		d.t.Fatal(err)
	}

	var parts []string
	if page.Gap {
		parts = append(parts, "gap")
	}
	if page.Partial {
		parts = append(parts, "partial")
	}
	for i := range page.Changes {
		parts = append(parts, page.Changes[i].Address.Key)
	}

	return strings.Join(parts, " "), page.Cursor
}

func (d *desk) want(w *feed.Watcher, want string) (cursor string) {
	d.t.Helper()
	got, cursor := d.next(w)
	if got != want {
		d.t.Errorf("the page is %q, want %q", got, want)
	}
	return cursor
}

// quiet checks that there is no page.
func (d *desk) quiet(w *feed.Watcher) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	cancel()
	if page, err := w.Next(ctx); !fault.Is(err, fault.Canceled) {
		d.t.Errorf("there is a page: %+v, %v", page, err)
	}
}

func changes(tenant string, keys ...string) (all []model.Change) {
	for _, k := range keys {
		all = append(all, model.Change{Class: model.ClassExecution, Kind: model.ChangeStarted, Address: model.Address{Tenant: tenant, Type: "order", Key: k}, Status: model.Running})
	}
	return all
}

// A tap gets all changes of all tenants, with watchers or without.
func TestTap(t *testing.T) {
	t.Parallel()
	var got []string
	d := newDesk(t, func(c *feed.Config) {
		c.Tap = func(all []model.Change) {
			for i := range all {
				got = append(got, all[i].Address.Tenant+all[i].Address.Key)
			}
		}
	})
	if !d.On() {
		t.Error("changes are not wanted although there is a tap")
	}
	d.Publish(append(changes("a", "1", "2"), changes("b", "x")...))
	w := d.watch("a", "")
	d.want(w, "")
	d.Publish(changes("a", "3"))
	d.want(w, "3")
	if want := "a1 a2 bx a3"; strings.Join(got, " ") != want {
		t.Errorf("the tap has got %q, want %q", got, want)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if d.On() {
		t.Error("changes are wanted although no caller watches")
	}

	w := d.watch("a", "")
	if !d.On() {
		t.Error("changes are not wanted although a caller watches")
	}
	start := d.want(w, "") // the first page comes immediately
	d.Publish(append(changes("a", "1", "2"), changes("b", "x")...))
	d.Publish(changes("a", "3"))
	d.want(w, "1 2 3")
	d.quiet(w)

	// Another watcher continues where the first one was.
	again := d.watch("a", start)
	d.want(again, "1 2 3")
	d.Publish(changes("a", "4"))
	d.want(again, "4")
	d.want(w, "4")
	w.Close()
	w.Close()
	again.Close()
}

func TestFilter(t *testing.T) {
	t.Parallel()
	c := model.Change{Class: model.ClassTask, Address: model.Address{Tenant: "a", Type: "order", Key: "k"}, Name: "pay", Status: model.Failed, Kind: model.ChangeFailed, Queue: "mail"}
	for _, f := range []model.ChangeFilter{
		{},
		{Classes: []model.ChangeClass{model.ClassWorker, model.ClassTask}},
		{Types: []string{"order"}},
		{Types: []string{"x", "task:pay"}},
		{Key: "k"},
		{Statuses: []model.Status{model.Running, model.Failed}},
		{Classes: []model.ChangeClass{model.ClassTask}, Types: []string{"order"}, Key: "k", Statuses: []model.Status{model.Failed}},
		{Kinds: []model.ChangeKind{model.ChangeDead, model.ChangeFailed}},
		{Queues: []string{"mail"}},
		{Queues: []string{"print", "mail"}, Key: "k"},
	} {
		if !f.Matches(&c) {
			t.Errorf("%+v does not select the change", f)
		}
	}

	for _, f := range []model.ChangeFilter{
		{Classes: []model.ChangeClass{model.ClassExecution}},
		{Types: []string{"pay"}},
		{Types: []string{"task:order"}},
		{Key: "K"},
		{Statuses: []model.Status{model.Running}},
		{Types: []string{"order"}, Key: "other"},
		{Kinds: []model.ChangeKind{model.ChangeCompleted}},
		{Queues: []string{"print"}},
		{Queues: []string{"mail"}, Key: "other"},
	} {
		if f.Matches(&c) {
			t.Errorf("%+v selects the change", f)
		}
	}

	mail := model.ChangeFilter{Queues: []string{"mail"}}
	for want, all := range map[bool][]model.Change{
		true: {{Class: model.ClassSetting, Of: "queue", Name: "mail"}, {Class: model.ClassTask}}, // the feed may not know the queue
		false: {
			{Class: model.ClassSetting, Of: "queue", Name: "print"},
			{Class: model.ClassSetting, Of: "limit", Name: "mail"},
			{Class: model.ClassExecution},
			{Class: model.ClassEntity},
			{Class: model.ClassWorker, Name: "mail"},
		},
	} {
		for _, c := range all {
			if mail.Matches(&c) != want {
				t.Errorf("the watch of a queue selects %+v: %v", c, !want)
			}
		}
	}
}

// The feed knows the queue of a task after it was scheduled, until the task or its run ends. It
// knows a bounded number of tasks.
func TestQueuesOfTasks(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	w := d.watch("a", "")
	d.want(w, "")
	task := func(run byte, id string, kind model.ChangeKind, queue string) model.Change {
		return model.Change{Class: model.ClassTask, Kind: kind, Address: model.Address{Tenant: "a", Type: "order", Key: "k"}, Run: model.RunID{run}, Task: id, Queue: queue, Status: model.Running}
	}
	queues := func(all ...model.Change) (got []string) {
		t.Helper()
		d.Publish(all)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		page, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Changes {
			got = append(got, page.Changes[i].Queue)
		}
		return got
	}
	want := func(want string, all ...model.Change) {
		t.Helper()
		if got := strings.Join(queues(all...), " "); got != want {
			t.Errorf("the queues are %q, want %q", got, want)
		}
	}

	want("mail print mail print mail ", task(1, "a", model.ChangeScheduled, "mail"), task(1, "b", model.ChangeScheduled, "print"),
		task(1, "a", model.ChangeClaimed, ""), task(1, "b", model.ChangeRetrying, ""), task(1, "a", model.ChangeCompleted, ""), task(1, "a", model.ChangeClaimed, ""))
	ended := model.Change{Class: model.ClassExecution, Kind: model.ChangeFailed, Address: model.Address{Tenant: "a", Type: "order", Key: "k"}, Run: model.RunID{1}, Status: model.Failed}
	want("print  ", task(1, "b", model.ChangeClaimed, ""), ended, task(1, "b", model.ChangeClaimed, ""))

	for i := range 10_000 {
		queues(task(2, fmt.Sprint(i), model.ChangeScheduled, "mail"))
	}
	want("mail", task(2, "0", model.ChangeClaimed, ""))
	want("mail ", task(3, "new", model.ChangeScheduled, "mail"), task(2, "0", model.ChangeClaimed, ""))
	want("mail", task(3, "new", model.ChangeClaimed, ""))
	d.Claim([]model.ShardID{0})
	d.want(w, "gap")
	want("", task(3, "new", model.ChangeClaimed, ""))
}

// A slow reader gets one gap notice and continues with the next change. It delays no publisher.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]func(*feed.Config){
		"count": func(c *feed.Config) { c.Changes = 3 },
		"bytes": func(c *feed.Config) { one := changes("a", "1")[0]; c.Bytes = 3*one.Size() + 1 },
		"total": func(c *feed.Config) { one := changes("a", "1")[0]; c.Total = 3*one.Size() + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, bound)
			slow, fast := d.watch("a", ""), d.watch("a", "")
			first := d.want(slow, "")
			d.want(fast, "")
			for _, k := range []string{"1", "2", "3"} {
				d.Publish(changes("a", k))
				d.want(fast, k)
			}

			kept := d.watch("a", first)
			d.want(kept, "1 2 3") // exactly as many changes as the buffer has
			d.Publish(changes("a", "4"))
			d.want(fast, "4")
			d.want(slow, "gap")
			d.quiet(slow)
			d.want(d.watch("a", first), "gap")
			d.Publish(changes("a", "5"))
			d.want(slow, "5")
			d.want(kept, "4 5")
		})
	}
}

// The buffers of all tenants share the memory of the node.
func TestTenantsShareTheMemory(t *testing.T) {
	t.Parallel()
	one := changes("a", "1")[0]
	d := newDesk(t, func(c *feed.Config) { c.Total = 4 * one.Size() })
	a := d.watch("a", "")
	start := d.want(a, "")
	d.Publish(changes("a", "1", "2", "3", "4"))
	d.want(d.watch("a", start), "1 2 3 4")
	d.want(d.watch("b", ""), "") // now each buffer may have half of the memory
	d.want(d.watch("a", start), "gap")
	d.want(a, "gap")
}

// A watcher with a cursor that the feed does not know gets a gap notice. The feed refuses a text
// that is not a cursor.
func TestUnknownCursors(t *testing.T) {
	t.Parallel()
	d, other := newDesk(t), newDesk(t)
	d.watch("a", "")
	_, mine := d.next(d.watch("b", ""))
	_, others := other.next(other.watch("a", ""))
	forged := func(position byte) string {
		b, err := base64.RawURLEncoding.DecodeString(mine)
		if err != nil {
			t.Fatal(err)
		}
		b[8], b[15] = position, 9
		return base64.RawURLEncoding.EncodeToString(b)
	}

	// These are a cursor of another tenant, and a cursor of another life of the process.
	for _, c := range []string{mine, others} {
		d.want(d.watch("a", c), "gap")
	}
	// These cursors are far behind, far ahead and negative.
	for _, c := range []string{forged(0), forged(0x7f), forged(0xff)} {
		d.want(d.watch("b", c), "gap")
	}
	for _, c := range []string{"x", "****", strings.Repeat("A", 21), strings.Repeat("A", 23), strings.Repeat("A", 1<<20), mine + "\n"} {
		if w, err := d.Watch("a", model.ChangeFilter{}, c); !fault.Is(err, fault.Invalid) || w != nil {
			t.Errorf("%.40q: %v", c, err)
		}
	}
}

// A caller whose connection broke has a while to come back.
func TestLinger(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	w := d.watch("a", "")
	start := d.want(w, "")
	w.Close()
	d.pass(feed.DefaultLinger - 1)
	d.Publish(changes("a", "1"))
	w = d.watch("a", start)
	d.want(w, "1")
	w.Close()

	d.pass(feed.DefaultLinger)
	d.Publish(changes("b", "x"))
	if d.On() {
		t.Error("changes are wanted although no caller has watched for a while")
	}
	d.want(d.watch("a", start), "gap")
}

// Watchers learn when shards have moved.
func TestMovedShards(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	w := d.watch("a", "")
	cursor := d.want(w, "")
	d.Publish(changes("a", "1"))
	d.Claim([]model.ShardID{0})
	d.want(w, "gap")
	d.want(d.watch("a", cursor), "gap")
	d.quiet(w)
	d.Release([]model.ShardID{0})
	d.Release([]model.ShardID{0})
	d.want(w, "partial")
	d.quiet(w)
	d.Claim([]model.ShardID{0})
	d.want(w, "gap")
}

// A watcher whose filter selects nothing still gets a page now and then, so that its cursor does
// not become too old.
func TestCursorAdvancesWithoutChanges(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	w, err := d.Watch("a", model.ChangeFilter{Key: "never"}, "")
	if err != nil {
		t.Fatal(err)
	}
	first := d.want(w, "")
	var keys []string
	for i := range 3_000 {
		keys = append(keys, fmt.Sprint(i))
	}
	d.Publish(changes("a", keys...))
	if later := d.want(w, ""); later == first {
		t.Error("the cursor has not moved")
	}
	d.quiet(w)
}

func TestBoundsOfWatchers(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(c *feed.Config) { c.Watchers, c.TenantWatchers = 3, 2 })
	refused := func(tenant, says string) {
		t.Helper()
		if _, err := d.Watch(tenant, model.ChangeFilter{}, ""); !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), says) {
			t.Errorf("another watcher of %s: %v", tenant, err)
		}
	}
	first := d.watch("a", "")
	d.watch("a", "")
	refused("a", "the tenant has 2")
	d.watch("b", "")
	refused("b", "the node has 3")
	first.Close()
	d.watch("a", "")
}

func TestClosedHub(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	w := d.watch("a", "")
	d.want(w, "")
	ended := make(chan error)
	go func() {
		_, err := w.Next(context.Background())
		ended <- err
	}()
	d.Close()
	d.Close()
	if err := <-ended; !fault.Is(err, fault.Unavailable) {
		t.Error(err)
	}
}

// While several lanes publish, each of many watchers gets all changes in order, or a gap notice.
func TestManyWatchers(t *testing.T) {
	t.Parallel()
	const lanes, each = 4, 2_000
	d := newDesk(t, func(c *feed.Config) { c.Changes = 1_000 })
	var lanesDone, watchersDone sync.WaitGroup
	for range 8 {
		w := d.watch("a", "")
		d.want(w, "")
		watchersDone.Go(func() {
			defer w.Close()
			last := map[string]int64{}
			for {
				page, err := w.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}

				if page.Gap {
					clear(last)
				}

				for i := range page.Changes {
					c := &page.Changes[i]
					if c.Seq == each {
						return
					}
					if was, known := last[c.Address.Key]; known && c.Seq != was+1 {
						t.Errorf("after %d of %s comes %d", was, c.Address.Key, c.Seq)
						return
					}
					last[c.Address.Key] = c.Seq
				}
			}
		})
	}

	for i := range lanes {
		lanesDone.Go(func() {
			for n := range int64(each) {
				c := changes("a", fmt.Sprint(i))
				c[0].Seq = n
				d.Publish(c)
			}
		})
	}
	lanesDone.Wait()
	all := make(chan struct{})
	go func() {
		watchersDone.Wait()
		close(all)
	}()
	end := changes("a", "end")
	end[0].Seq = each
	// A watcher that is behind gets a gap notice and misses an end. So publish ends until each
	// watcher has got one.
	for tick := time.Tick(time.Millisecond); ; {
		d.Publish(end)
		select {
		case <-all:
			return
		case <-tick:
		}
	}
}

func TestSizeCountsTexts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	c := model.Change{Address: model.Address{Tenant: long, Type: long, Key: long}, Task: long, Name: long, Of: long, Queue: long}
	if diff := cmp.Diff(700, c.Size()-(&model.Change{}).Size()); diff != "" {
		t.Error(diff)
	}
}
