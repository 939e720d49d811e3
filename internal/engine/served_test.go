package engine

import (
	"reflect"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A node announces remote workers with the same offer as one entry, however many there are. Workers
// of the process itself, and workers with another offer, have their own entries.
func TestRemoteWorkersAreAnnouncedByClass(t *testing.T) {
	t.Parallel()
	remote := func(id, queue string, slots int) store.Served {
		return store.Served{Tenant: "t", Worker: model.RemoteWorkerName("w", "t", id), Queues: []string{queue}, Activities: []string{"a"}, Slots: slots}
	}
	own := store.Served{Tenant: "t", Worker: "own", Queues: []string{"q"}, Activities: []string{"a"}, Slots: 1}
	got := classesOf([]store.Served{own, remote("1", "q", 4), remote("2", "q", 5), remote("3", "other", 6), remote("4", "q", 7)})

	class := remote("1", "q", 16)
	class.Workers = 3
	if want := []store.Served{own, class, remote("3", "other", 6)}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The engine keeps the list of what its workers can run between changes. The list changes with
// every worker that joins or leaves, and with every task worker that stops taking tasks or starts
// again.
func TestServedFollowsTheWorkers(t *testing.T) {
	t.Parallel()
	e := &Engine{}
	expect := func(after string, want ...store.Served) {
		t.Helper()
		if got := e.servedByWorkers(); !slices.EqualFunc(got, want, func(a, b store.Served) bool { return reflect.DeepEqual(a, b) }) {
			t.Errorf("after %s: got %+v, want %+v", after, got, want)
		}
	}
	expect("nothing")

	e.workers.add(func(id lane.WorkerID) *Session {
		return &Session{eng: e, id: id, offer: model.Offer{Tenant: "t", Workflows: []string{"w"}}}
	})
	workflow := store.Served{Tenant: "t", Workflow: "w"}
	expect("a worker of workflows", workflow)

	entities := e.entityWorkers.add(func(id lane.WorkerID) *EntitySession {
		return &EntitySession{eng: e, id: id, offer: model.EntityOffer{Tenant: "t", Version: "v1", Types: []model.EntityType{{Type: "account"}}}}
	})
	expect("a worker of entities", store.Served{Tenant: "t", Workflow: "account", Version: "v1"}, workflow)
	e.entityWorkers.remove(entities.id)
	expect("the worker of entities left", workflow)

	tasks := e.taskWorkers.add(func(id queue.WorkerID) *TaskSession {
		return &TaskSession{eng: e, id: id, slots: 2, offer: model.TaskOffer{Tenants: []string{"t"}, Name: "n", Slots: 2}}
	})
	worker := store.Served{Tenant: "t", Worker: "n", Slots: 2}
	expect("a worker of tasks", worker, workflow)
	tasks.Slots(0)
	worker.Draining = true
	expect("the worker of tasks drains", worker, workflow)
	tasks.Slots(1)
	worker.Draining = false
	expect("the worker of tasks goes on", worker, workflow)
}
