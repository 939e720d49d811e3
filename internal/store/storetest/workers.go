package storetest

import (
	"bytes"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var workerTests = []test{
	{name: "names of remote workers are stored and removed", run: testWorkerNames},
	{name: "names stay when their node is fenced", run: testWorkerNamesOutlive},
	{name: "names that are too long are refused", run: testWorkerNamesBounds},
}

func (x *suite) nameWorkers(w store.WorkerNames) {
	x.Helper()
	if err := x.Store.NameWorkers(x.Context(), w); err != nil {
		x.Fatalf("name workers: %v", err)
	}
}

func (x *suite) wantHomes(what string, want ...model.NodeID) {
	x.Helper()
	slices.SortFunc(want, func(a, b model.NodeID) int { return bytes.Compare(a[:], b[:]) })
	got := try(x.Store.WorkerHomes(x.Context())).or(x)
	if !slices.Equal(got, want) {
		x.Errorf("homes %s: %v, want %v", what, got, want)
	}
}

func testWorkerNames(x *suite) {
	a, b, c := x.NodeID(), x.NodeID(), x.NodeID()
	x.wantHomes("in the beginning")
	x.nameWorkers(store.WorkerNames{})
	x.nameWorkers(store.WorkerNames{Add: []store.WorkerName{{Name: "one", Home: a}, {Name: "two", Home: a}, {Name: "three", Home: b}}})
	x.wantHomes("of three workers", a, b)

	x.nameWorkers(store.WorkerNames{Add: []store.WorkerName{{Name: "one", Home: c}}}) // the name is stored already
	x.nameWorkers(store.WorkerNames{Remove: []string{"two", "never seen"}})
	x.wantHomes("after one has left", a, b)
	x.nameWorkers(store.WorkerNames{Add: []store.WorkerName{{Name: "four", Home: c}}, Remove: []string{"one", "four"}})
	x.wantHomes("after two more have left, one of them at once", b)

	x.nameWorkers(store.WorkerNames{Add: []store.WorkerName{{Name: "five", Home: a}, {Name: "six", Home: c}}, Drop: []model.NodeID{b, c}})
	x.wantHomes("after two homes were dropped", a)
}

func testWorkerNamesOutlive(x *suite) {
	n := x.Join(1)
	x.nameWorkers(store.WorkerNames{Add: []store.WorkerName{{Name: "one", Home: n.ID}}})
	n.Fence()
	x.Join(1)
	x.wantHomes("after their node was fenced", n.ID)
}

func testWorkerNamesBounds(x *suite) {
	for _, name := range []string{"", strings.Repeat("n", store.MaxWorkerName+1)} {
		add := []store.WorkerName{{Name: "good", Home: x.NodeID()}, {Name: name, Home: x.NodeID()}}
		if err := x.Store.NameWorkers(x.Context(), store.WorkerNames{Add: add}); store.ClassOf(err) != store.Refused {
			x.Errorf("a name of %d bytes: %v, want a refusal", len(name), err)
		}
	}
	x.wantHomes("after refusals")
	x.nameWorkers(store.WorkerNames{Add: []store.WorkerName{{Name: strings.Repeat("n", store.MaxWorkerName), Home: model.NodeID{1}}}})
	x.wantHomes("of the longest name", model.NodeID{1})
}
