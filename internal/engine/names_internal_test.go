package engine

import (
	"strconv"
	"testing"

	"github.com/perdure/perdure/internal/store/memory"
)

// Workers that come and go before the engine can write their names leave nothing to write, however
// many they are. If a name may have been written, the engine removes it.
func TestNamesOfWorkersThatComeAndGo(t *testing.T) {
	t.Parallel()
	// This names value writes nothing, because its engine does not run.
	n := New(Config{Store: memory.New(memory.Options{})}).names
	admitted := 0
	n.add("stays", func() { admitted++ })
	for i := range 1000 {
		name := strconv.Itoa(i)
		n.add(name, func() { admitted++ })
		n.remove(name)
	}
	if len(n.queue) != 1 || n.queue[0].add.Name != "stays" {
		t.Errorf("%d names wait to be written, want one", len(n.queue))
	}

	n.take() // a write begins
	n.remove("stays")
	if w, _, _ := n.take(); len(w.Remove) != 1 || w.Remove[0] != "stays" {
		t.Errorf("the next change is %+v", w)
	}
	if admitted > 0 {
		t.Errorf("%d workers were admitted without a name", admitted)
	}
}
