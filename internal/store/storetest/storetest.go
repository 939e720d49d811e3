// Package storetest is the conformance suite of the store port. It tests what the documentation of
// internal/store promises, and every adapter must pass it. It also has fixtures with which other
// packages write tests of stores.
//
// An adapter runs it from an external test package:
//
//	func TestConformance(t *testing.T) {
//		storetest.RunWith(t, storetest.Options{Open: open, Reopen: reopen})
//	}
//
// Every subtest opens its own store and runs in parallel with the other subtests, so opening a
// store should be cheap. The suite uses only the port. To wait until a lease has expired, it
// watches the clock of the store. It never sleeps for a fixed time.
//
// The suite also tests these points, which the documentation of the port leaves open:
//
//   - A close clears Parked, Waits and Blocked, because they describe open runs.
//   - Register with the id of a registered node replaces that registration and gives the node a new
//     epoch. So a node may repeat the call when the answer was lost.
//   - Unregister of a node that is gone frees no shards. It returns nil or an error of class
//     Fenced.
//   - A request is remembered under (shard, Message.To, Message.RequestID). Seen and PutInbox use
//     this key.
//   - Texts are compared and ordered by their bytes, whatever the collation of the database. A
//     KeyPrefix is not a pattern.
//   - The removal of an entity names the version that it removes. If Gone is set and Prev is 0, the
//     store refuses the batch.
//   - The events in Message.With are signals: their Seq, At and Kind need not be stored.
package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// Options describes an adapter to the suite.
type Options struct {
	// Open opens a new, empty store with at least 16 shards. The suite closes the store. Closing it
	// again must be harmless.
	Open func(t *testing.T) store.Store
	// Reopen closes a store and opens its data again. It is nil if the adapter keeps no data after
	// Close.
	Reopen func(t *testing.T, s store.Store) store.Store
	// Second opens another handle on the data of an open store, as another process would. It is nil
	// if only one process can open the store.
	Second func(t *testing.T, s store.Store) store.Store
	// Advance moves the clock of the store. It is nil for a store that uses real time. For such a
	// store, the suite uses leases of milliseconds and waits for them.
	Advance func(s store.Store, d time.Duration)
	// Only are the groups of tests to run; nil runs all.
	Only []string
	// Skip are the names of tests that do not apply.
	Skip []string
	// Alone says that only one process opens the store, so that there is no mail between nodes.
	Alone bool
}

// Overlapping returns the groups of tests in which calls overlap, and the groups about the rules
// that overlapping calls rely on: fences, leases and the life of a handle. With the race detector,
// an adapter may run only these groups, because in the other groups only one goroutine calls the
// store.
func Overlapping() []string {
	return []string{"handle", "commit", "fence", "leases", "shards", "concurrency", "durability", "shared", "random"}
}

// RunWith runs the suite.
func RunWith(t *testing.T, o Options) {
	t.Helper()
	groups := []struct {
		name  string
		tests []test
	}{
		{"handle", handleTests},
		{"commit", commitTests},
		{"fence", fenceTests},
		{"starts", startTests},
		{"runs", runTests},
		{"events", eventTests},
		{"timers", timerTests},
		{"deletes", deleteTests},
		{"removes", removeTests},
		{"retention", retentionTests},
		{"messages", messageTests},
		{"inbox", inboxTests},
		{"damaged rows", damagedTests},
		{"texts", textTests},
		{"list", listTests},
		{"search", searchTests},
		{"labels", labelTests},
		{"queries", queryTests},
		{"dead tasks", deadTests},
		{"data of tasks", taskDataTests},
		{"entities", entityTests},
		{"settings", settingTests},
		{"peer mail", peerTests},
		{"remote workers", workerTests},
		{"audit", auditTests},
		{"reports", reportTests},
		{"leases", leaseTests},
		{"shards", shardTests},
		{"concurrency", concurrencyTests},
		{"durability", durabilityTests},
		{"shared", sharedTests},
		{"random", randomTests},
	}
	for _, g := range groups {
		if len(o.Only) > 0 && !slices.Contains(o.Only, g.name) {
			continue
		}

		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.tests {
				if c.needs != nil && !c.needs(&o) || slices.Contains(o.Skip, c.name) {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					s := o.Open(t)
					f := New(t, s)
					t.Cleanup(func() { _ = f.Store.Close() })
					c.run(&suite{Fixture: f, t: t, o: &o})
				})
			}
		})
	}
}

// test is one subtest of the suite.
type test struct {
	name string
	run  func(x *suite)
	// needs reports whether the test applies to the adapter; nil means yes.
	needs func(o *Options) bool
}

// suite is what a subtest works with: a fixture on its own store.
type suite struct {
	*Fixture
	t *testing.T
	o *Options
}

func durable(o *Options) bool { return o.Reopen != nil }

func isShared(o *Options) bool { return o.Second != nil }
