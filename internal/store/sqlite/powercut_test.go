package sqlite

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/storetest"
)

// powerState is the state of a store after a step: the number of events, and the fence of its only
// node.
type powerState struct {
	Events int
	Node   model.NodeID
	Batch  int64
}

// powerLoad writes to a store on a cutDisk and knows the contents of the store after each
// acknowledged step.
type powerLoad struct {
	testing.TB
	rng    *rand.Rand
	disk   *cutDisk
	cfg    Config
	s      *Store
	states []powerState // after each acknowledged step; the first is that of an empty store
}

var powerRun = storetest.Subject{RunKey: store.RunKey{Shard: 1, Run: model.RunID{1}}}

func newPowerLoad(t testing.TB, seed uint64, cfg Config) *powerLoad {
	t.Helper()
	dir := t.TempDir()
	l := &powerLoad{TB: t, rng: rand.New(rand.NewPCG(seed, 1)), disk: newCutDisk(t, dir, nil), states: make([]powerState, 1)}
	l.cfg = cfg
	l.cfg.Path, l.cfg.vfs = filepath.Join(dir, "app.db"), l.disk.name
	return l
}

// state returns the last acknowledged state.
func (l *powerLoad) state() powerState { return l.states[len(l.states)-1] }

// recordAcked notes an acknowledged step.
func (l *powerLoad) recordAcked(s powerState) {
	l.states = append(l.states, s)
	l.disk.ack()
}

// open opens the store and registers a node. A small cache makes large transactions spill into the
// log before they commit.
func (l *powerLoad) open() {
	l.Helper()
	l.s = openTest(l, l.cfg)
	onWriter(l, l.s, func(w *writer) {
		if err := w.db.Exec("pragma cache_size = 20"); err != nil {
			l.Fatal(err)
		}
	})
	now := l.state()
	now.Node, now.Batch = model.NodeID{byte(len(l.states)), byte(len(l.states) >> 8), 1}, 0
	if _, err := l.s.Register(l.Context(), store.NodeInfo{ID: now.Node, Sole: true}, 1, 1e18); err != nil {
		l.Fatal(err)
	}
	l.recordAcked(now)
}

// powerEvent returns the event at a position. Its contents depend only on the position.
func powerEvent(seq int) store.EventRow {
	e := powerRun.Event(int64(seq))
	e.Event.Input = storetest.Text(strings.Repeat(fmt.Sprintf("%d,", seq), 1+(seq*seq*7919)%8000))
	return e
}

// commit commits some events.
func (l *powerLoad) commit() {
	l.Helper()
	now := l.state()
	epoch := int64(0)

	onWriter(l, l.s, func(w *writer) {
		var err error
		if epoch, _, err = w.number("select epoch from perdure_fences"); err != nil {
			l.Fatal(err)
		}
	})

	now.Batch++
	b := &store.Batch{Lane: store.LaneRef{Node: now.Node, Epoch: epoch}, Number: now.Batch}
	for range 1 + l.rng.IntN(4) {
		now.Events++
		b.Events = append(b.Events, powerEvent(now.Events))
	}

	if _, err := l.s.Commit(l.Context(), b); err != nil {
		l.Fatal(err)
	}
	l.recordAcked(now)
}

// rollBack starts a transaction that spills into the log and rolls it back.
func (l *powerLoad) rollBack() {
	l.Helper()
	refused := errors.New("refused")
	err := l.s.write(l.Context(), "test", func(w *writer) error {
		if _, err := w.exec("update perdure_history set body = zeroblob(20000) where seq > ?", l.state().Events-60); err != nil {
			return err
		}
		return refused
	})
	if !errors.Is(err, refused) {
		l.Fatal(err)
	}
}

// move moves the log into the file, as far as readers allow.
func (l *powerLoad) move() {
	l.Helper()
	onWriter(l, l.s, func(w *writer) {
		if err := l.s.moveStep(w.conn); err != nil {
			l.Fatal(err)
		}
	})
}

// steps runs n random steps.
func (l *powerLoad) steps(n int) {
	l.Helper()

	for range n {
		switch k := l.rng.IntN(40); {
		case k < 34:
			l.commit()
		case k < 36:
			l.rollBack()
		case k < 38:
			l.move()
		case k == 38: // a reader keeps a part of the log from being moved
			err := l.s.read(l.Context(), "test", func(c *conn) error {
				if _, _, err := c.number("select count(*) from perdure_history"); err != nil {
					return err
				}
				l.commit()
				l.move()
				l.commit()
				return nil
			})
			if err != nil {
				l.Fatal(err)
			}
		default:
			closeTest(l, l.s)
			l.open()
		}
	}
}

// A power cut may lose each unsynced sector, size and name separately. Acknowledged steps survive.
// The step in flight survives completely or not at all.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	sequential(t)
	powerCuts(t, 1, 20)
}

// powerCuts runs every kind of load and cuts the power in each of them.
func powerCuts(t *testing.T, seed uint64, cuts int) {
	t.Helper()
	for name, load := range map[string]func(l *powerLoad){
		"from the first open on": func(l *powerLoad) {
			l.open()
			l.steps(60)
		},
		"log moved in the background": func(l *powerLoad) {
			l.cfg.WALSize = minWALSize
			l.open()
			l.steps(150)
		},
		"upgrade": func(l *powerLoad) {
			l.open()
			l.steps(10)
			tamper(l, l.s, dropEntities+"update perdure_meta set value = 6 where name = 'schema'")
			closeTest(l, l.s)
			from := len(l.disk.record)
			l.open()
			l.commit()
			l.disk.begin = from
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Logf("seed %d", seed)
			l := newPowerLoad(t, seed, Config{})
			load(l)
			closeTest(t, l.s)

			for n := range cuts {
				l.cutPower(rand.New(rand.NewPCG(seed, uint64(n)+2)))
				if t.Failed() {
					t.Fatalf("seed %d, cut %d", seed, n)
				}
			}
		})
	}
}

// cutPower cuts the power at a random point and checks the remaining contents. Sometimes it cuts
// the power once more while the store is opened again.
func (l *powerLoad) cutPower(rng *rand.Rand) {
	l.Helper()
	at := l.disk.begin + rng.IntN(len(l.disk.record)-l.disk.begin+1)
	left, acked := l.disk.cut(rng, at)
	what := fmt.Sprintf("cut after operation %d of %d", at, len(l.disk.record))
	if at > 0 {
		what += fmt.Sprintf(" (%s)", l.disk.record[at-1].kind)
	}

	for rng.IntN(3) == 0 {
		dir := l.TempDir()
		disk := newCutDisk(l, dir, left)
		s, err := Open(l.Context(), Config{Path: filepath.Join(dir, "app.db"), vfs: disk.name})
		if err != nil {
			l.Errorf("%s: the store does not open: %v", what, err)
			return
		}
		closeTest(l, s)
		_ = os.RemoveAll(dir) // there are many of them
		at := rng.IntN(len(disk.record) + 1)
		left, _ = disk.cut(rng, at)
		what += fmt.Sprintf(", then after operation %d of %d of opening and closing", at, len(disk.record))
	}

	dir := l.TempDir()
	defer func() { _ = os.RemoveAll(dir) }()
	left.write(l, dir)
	l.verify(what, filepath.Join(dir, "app.db"), acked)
}

// verify opens the surviving files and compares their contents with the acknowledged steps.
func (l *powerLoad) verify(what, path string, acked int) {
	l.Helper()
	s, err := Open(l.Context(), Config{Path: path})
	if err != nil {
		l.Errorf("%s: the store does not open: %v", what, err)
		return
	}
	defer closeTest(l, s)
	events, err := s.LoadEvents(l.Context(), powerRun.RunKey, 0, 1<<30, 1<<30)
	if err != nil {
		l.Errorf("%s: %v", what, err)
		return
	}
	for i := range events {
		if want := powerEvent(i + 1).Event; events[i].Seq != want.Seq || string(events[i].Input.Data) != string(want.Input.Data) {
			l.Errorf("%s: event %d is not what was written", what, i+1)
			return
		}
	}

	got := powerState{Events: len(events)}
	onWriter(l, s, func(w *writer) {
		err := w.query("select node, batch from perdure_fences", func(q *stmt) error {
			got.Node, _ = q.id(0)
			got.Batch = q.int(1)
			return nil
		})
		if err != nil {
			l.Fatal(err)
		}

		err = w.query("pragma integrity_check", func(q *stmt) error {
			if q.text(0) != "ok" {
				l.Errorf("%s: integrity: %s", what, q.text(0))
			}
			return nil
		})
		if err != nil {
			l.Fatal(err)
		}
	})
	if want := l.states[acked]; got != want && (acked+1 == len(l.states) || got != l.states[acked+1]) {
		l.Errorf("%s: the store holds %+v, it had acknowledged %+v", what, got, want)
	}

	// The store continues.
	if _, err := s.Register(l.Context(), store.NodeInfo{ID: model.NodeID{0xff}, Sole: true}, 1, 1e18); err != nil {
		l.Errorf("%s: the store takes no writes: %v", what, err)
	}
}
