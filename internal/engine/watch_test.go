package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// notices collects what a watcher of a node gets: changes of tasks and workers, and what the feed
// says about itself.
type notices struct {
	all  []string
	done chan error
	stop context.CancelFunc
}

// watch begins a watch in a bubble of synctest. The notices need no lock, because take waits until
// the goroutine of the watch is blocked.
func watch(t *testing.T, m *member) *notices {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	n := &notices{done: make(chan error, 1), stop: cancel}

	go func() {
		n.done <- m.Watch(ctx, model.DefaultTenant, model.ChangeFilter{}, "", func(p model.ChangePage) error {
			text := "page"
			if p.Gap {
				text += " gap"
			}
			if p.Partial {
				text += " partial"
			}
			n.all = append(n.all, text)
			for i := range p.Changes {
				c := &p.Changes[i]
				n.all = append(n.all, strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Class, c.Kind, c.Address.Key)))
			}
			return nil
		})
	}()

	synctest.Wait()
	return n
}

// take returns the notices since the last call.
func (n *notices) take() []string {
	synctest.Wait()
	all := n.all
	n.all = nil
	return all
}

// A watcher learns that another node owns shards, that the shards have come back, and that workers
// join and leave, on this node and on another. A node that stops ends its watches.
func TestWatchersOfSeveralNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t)
		complete := func(_ *member, c model.Claim) *model.TaskReport {
			return &model.TaskReport{Output: c.Input}
		}
		a := r.join(4, complete)
		time.Sleep(time.Minute)
		w := watch(t, a)
		if got := w.take(); !slices.Equal(got, []string{"page"}) {
			t.Errorf("a node that is alone says %q", got)
		}

		b := r.join(4, complete)
		time.Sleep(time.Minute)
		if got := w.take(); !slices.Contains(got, "page partial") || !slices.Contains(got, "worker joined") || slices.Contains(got, "page gap") {
			t.Errorf("with a second node it says %q", got)
		}
		b.stop()
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		r.nodes = r.nodes[:1]
		time.Sleep(time.Minute)
		got := w.take()
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "page gap") }) || got[len(got)-1] == "page partial" {
			t.Errorf("without the second node it says %q", got)
		}

		task := submit("x", model.TaskSpec{})
		if _, err := a.Send(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Await(t.Context(), task.To, model.RunID{}); err != nil {
			t.Error(err)
		}
		if got := w.take(); !slices.Contains(got, "task scheduled x") || !slices.Contains(got, "task completed x") {
			t.Errorf("after a task it says %q", got)
		}

		if err := a.hand.session.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if got := w.take(); !slices.Equal(got, []string{"page", "worker left"}) {
			t.Errorf("without its worker it says %q", got)
		}

		a.stop()
		if err := <-a.done; err != nil {
			t.Error(err)
		}
		if err := <-w.done; !fault.Is(err, fault.Unavailable) {
			t.Errorf("the watch ended with %v", err)
		}
		w.stop()
	})
}
