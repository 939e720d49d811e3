package engine

import (
	"reflect"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Remote workers that offer the same are announced as one entry, however many there are. Workers of
// the process itself, and workers that offer something else, keep their own.
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
