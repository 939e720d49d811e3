package e2e_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
)

// Two processes share a database: each talks to executions that the other one owns as if they were its own.
func TestTalkAcrossProcesses(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgres")
	var booked atomic.Int64
	carts := cart(&booked)
	one, two := s.open(carts), s.open(carts)
	eventually(t, "both own shards", func() bool {
		return s.sql("select count(distinct node) from perdure.shards where node is not null")[0][0] == "2"
	})
	for i := range 6 {
		starter, talker := one, two
		if i%2 == 1 {
			starter, talker = two, one
		}
		exec, err := carts.Start(caller(t, starter), "x", perdure.RawKey(fmt.Sprint("k", i)))
		if err != nil {
			t.Fatal(err)
		}
		c := caller(t, talker)
		for range 2 {
			n, err := addItem.Call(c, exec, item{"a", 3}, perdure.RequestID("first"))
			equal(t, "an update", n, err, 3)
		}
		n, err := contents.Ask(c, exec, "a")
		equal(t, "a query", n, err, 3)
		_, err = addItem.Call(c, exec, item{"a", 0})
		if refused := (*perdure.RemoteError)(nil); !errors.As(err, &refused) {
			t.Errorf("a refused update: %v", err)
		}
		if err := talker.Pause(t.Context(), exec, "look"); err != nil {
			t.Error(err)
		}
		_, err = contents.Ask(c, exec, "a")
		fails(t, "a query while it is paused", err, perdure.ErrBlocked, "paused", "look")
		if err := talker.Resume(t.Context(), exec); err != nil {
			t.Error(err)
		}
		n, err = contents.Ask(c, exec, "a")
		equal(t, "a query after that", n, err, 3)
		if i == 0 {
			if err := talker.Terminate(t.Context(), exec, "enough"); err != nil {
				t.Error(err)
			}
			info, err := starter.Describe(t.Context(), exec)
			equal(t, "the status", info.Status, err, perdure.Terminated)
			continue
		}
		done(t, c, exec, 3)
	}
}
