package corpus_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

var update = flag.Bool("update", false, "record the histories that are missing")

// generation is the directory in testdata to which TestRecord writes. This package calls such a
// directory a generation, and starts a new one after a release.
const generation = "v1"

// fragile makes a step of the workflow "repaired" fail.
var fragile atomic.Bool

// recorder drives workflows and writes their histories.
type recorder struct {
	t   *testing.T
	app *perdure.App
	c   perdure.Client
}

// TestRecord records the missing histories; without -update it does nothing.
func TestRecord(t *testing.T) { //nolint:paralleltest // it changes fragile
	if !*update {
		t.Skip("records only with -update")
	}
	app, err := embedded.Config{Version: "v1"}.Open(t.Context(), "memory:", definitions())
	if err != nil {
		t.Fatal(err)
	}

	defer app.Close()
	r := &recorder{t, app, app.With(t.Context())}
	r.plain()
	r.talk()
	r.recordChains()
	r.recordPasts()
	r.recordShops()
	r.recordPurses()
	if err := os.WriteFile(filepath.Join("testdata", generation+".sums"), sums(t, generation), 0o644); err != nil {
		t.Fatal(err)
	}
}

// write exports a run unless it has been recorded before.
func (r *recorder) write(name string, of perdure.Target) {
	r.t.Helper()
	path := filepath.Join("testdata", generation, name+".jsonl")
	if _, err := os.Stat(path); err == nil {
		return
	}
	var b bytes.Buffer
	err := errors.Join(r.app.Histories().Export(r.t.Context(), of, &b), os.MkdirAll(filepath.Dir(path), 0o755))
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o644)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *recorder) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// awaitWait polls the execution until its reason for waiting contains the given text.
func (r *recorder) awaitWait(of perdure.Target, reason string) perdure.Info {
	r.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		info, err := r.app.Executions().Describe(r.t.Context(), of)
		if err == nil && strings.Contains(info.Reason, reason) {
			return info
		}
		if time.Now().After(end) {
			r.t.Fatalf("%+v, %v; want %q", info, err, reason)
		}
	}
}

// begin starts a workflow.
func begin[I, O any](r *recorder, w *perdure.Workflow[I, O], in I, key string) perdure.Execution[O] {
	r.t.Helper()
	x, err := w.Start(r.c, in, perdure.RawKey(key))
	r.must(err)
	return x
}

// end waits for the result.
func end[O any](r *recorder, x perdure.Execution[O]) {
	r.t.Helper()
	_, err := x.Result(r.c)
	r.must(err)
}

func (r *recorder) plain() {
	for _, x := range []perdure.Execution[string]{
		begin(r, steps, 3, "plain"), begin(r, timers, 0, "plain"), begin(r, versions, 0, "plain"), begin(r, post, "letter", "plain"),
	} {
		end(r, x)
		r.write(x.Ref.Workflow, x)
	}
}

func (r *recorder) talk() {
	x := begin(r, messages, 2, "plain")
	for _, w := range []string{"one", "two", "three", "four"} {
		r.must(word.Send(r.c, x, w))
	}
	r.awaitWait(x, "promise choice")
	r.must(choice.Resolve(r.c, x, "tea"))
	r.must(second.Reject(r.c, x, errors.New("no coffee")))
	end(r, x)
	r.write("messages", x)

	r.recordDrops()

	c := begin(r, canceled, 0, "plain")
	r.awaitWait(c, "signal word")
	r.must(c.Cancel(r.c, "changed my mind"))
	if _, err := c.Result(r.c); !errors.Is(err, perdure.ErrCanceled) {
		r.t.Fatal(err)
	}
	r.write("canceled", c)

	open := begin(r, messages, 1, "open")
	r.awaitWait(open, "signal word")
	r.write("open", open)

	other := begin(r, leaf, "wait", "other")
	f := begin(r, family, "plain", "plain")
	r.awaitWait(f, "child leaf/other")
	r.must(word.Send(r.c, other, "from the driver"))
	end(r, f)
	r.write("family", f)
	r.write("watched", other)
	r.write("leaf", leaf.Execution(perdure.RawKey("plain-keyed")))
}

// recordDrops records a run whose operator drops one unread signal and skips another.
func (r *recorder) recordDrops() {
	x := begin(r, messages, 1, "dropped")
	for _, w := range []string{"one", "two", "dropped", "skipped", "three"} {
		r.must(word.Send(r.c, x, w))
	}
	r.awaitWait(x, "promise choice")

	unread, err := r.app.Signals().List(r.t.Context(), x)
	r.must(err)
	if len(unread) != 3 {
		r.t.Fatalf("%d signals are unread, want 3", len(unread))
	}
	r.must(r.app.Signals().Drop(r.t.Context(), x, unread[0].ID, "sent by mistake"))
	_, err = r.app.Signals().Skip(r.t.Context(), x, unread[1].ID, "not yet")
	r.must(err)

	r.must(choice.Resolve(r.c, x, "tea"))
	r.must(second.Reject(r.c, x, errors.New("no coffee")))
	end(r, x)
	r.write("dropped", x)
}

func (r *recorder) recordChains() {
	x := begin(r, relay, 1, "plain")
	first := r.awaitWait(x, "signal word").Ref
	r.must(word.Send(r.c, x, "one"))
	r.must(word.Send(r.c, x, "two"))
	end(r, x)
	r.write("relay-1", first)
	r.write("relay-2", x)
}

func (r *recorder) recordPasts() {
	fragile.Store(true)
	x := begin(r, repaired, 0, "plain")
	if _, err := x.Result(r.c); err == nil {
		r.t.Fatal("it should fail")
	}
	r.write("failed", x)
	_, err := r.app.Executions().Fork(r.t.Context(), x, perdure.RawKey("fork"), perdure.SetResult("fragile", "edited"))
	r.must(err)
	fork := repaired.Execution(perdure.RawKey("fork"))
	end(r, fork)
	r.write("forked", fork)
	fragile.Store(false)
	_, err = r.app.Executions().Retry(r.t.Context(), x)
	r.must(err)
	end(r, x)
	r.write("retried", x)
	_, err = r.app.Executions().Reset(r.t.Context(), x, perdure.BeforeStep("fragile"))
	r.must(err)
	end(r, x)
	r.write("reset", x)
	again := begin(r, messages, 1, "reset")
	old := r.awaitWait(again, "signal word").Ref
	_, err = r.app.Executions().Reset(r.t.Context(), again, perdure.AfterPosition(0))
	r.must(err)
	r.write("gave-way", old)
}

func (r *recorder) recordShops() {
	begin(r, leaf, "wait", "shop")
	x := begin(r, shop, 1, "plain")
	first := r.awaitWait(x, "signal word").Ref
	for _, n := range []int{1, 2} {
		_, err := add.Call(r.c, x, n)
		r.must(err)
	}
	if _, err := add.Call(r.c, x, -1); err == nil {
		r.t.Fatal("it should be refused")
	}
	r.must(r.app.Executions().Pause(r.t.Context(), x, "inventory"))
	r.must(word.Send(r.c, x, "next"))
	r.must(r.app.Executions().Resume(r.t.Context(), x))
	for r.awaitWait(x, "signal word").Ref == first {
		time.Sleep(time.Millisecond)
	}
	_, err := add.Call(r.c, x, 4)
	r.must(err)
	r.must(word.Send(r.c, x, "close"))
	end(r, x)
	r.write("shop-1", first)
	r.write("shop-2", x)

	i := begin(r, shop, 1, "interrupted")
	r.awaitWait(i, "signal word")
	r.must(i.Cancel(r.c, "fire"))
	if _, err := i.Result(r.c); !errors.Is(err, perdure.ErrCanceled) {
		r.t.Fatal(err)
	}
	r.write("shop-interrupted", i)

	m := begin(r, tills, 0, "plain")
	r.awaitWait(m, "timer")
	r.must(word.Send(r.c, m, "paid"))
	end(r, m)
	r.write("till", m)
}

func (r *recorder) recordPurses() {
	h := begin(r, holder, "held", "plain")
	r.awaitWait(h, "signal word")
	x := begin(r, purchase, 100, "plain")
	end(r, x)
	r.write("purchase", x)
	r.write("holder-open", h)
	r.must(word.Send(r.c, h, "let go"))
	end(r, h)
	r.write("holder", h)
}

// sums returns the names and SHA-256 sums of the files of a generation.
func sums(t *testing.T, generation string) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", generation, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), filepath.Base(f))
	}
	return b.Bytes()
}
