package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/payload"
	"github.com/perdure/perdure/payload/zstd"
)

// ring returns a keyring whose keys are derived from their ids.
func ring(t *testing.T, current string, others ...string) *payload.Keys {
	t.Helper()
	keys := map[string][]byte{}
	for _, id := range append(others, current) {
		keys[id] = []byte(fmt.Sprintf("%-32s", id))
	}
	k, err := payload.NewKeys(current, keys, bytes.Repeat([]byte("r"), 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// sealingCodec returns a codec that compresses, encrypts and offloads nearly every payload.
func sealingCodec(f payload.Format, k payload.Keyring, blobs payload.Store) payload.Codec {
	return payload.Codec{Format: f, Chain: []payload.Transform{zstd.Compress(40), payload.Encrypt(k), payload.Offload(blobs, 120)}}
}

// Every scenario runs once more with payloads that are compressed, encrypted and offloaded, and
// with executions that leave memory at every wait.
//
// TestLongScenariosSealed does the same in PostgreSQL.
func TestScenariosSealed(t *testing.T) {
	t.Parallel()
	runSealed(t, "memory", "sqlite")
}

func runSealed(t *testing.T, kinds ...string) {
	for i, c := range scenarios {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onStores(t, kinds, func(t *testing.T, s *site) {
				s.cfg.IdleAfter = time.Nanosecond
				s.cfg.Payloads = sealingCodec([]payload.Format{payload.JSON, payload.Msgpack}[i%2], ring(t, "k1"), payload.Dir(t.TempDir()))
				c.run(t, s)
			})
		})
	}
}

// parcel is a value whose text is easy to find.
type parcel struct {
	Secret string
	Filler string
	Left   int
}

const secret = "4111-1111-1111-1111"

func newParcel(left int) parcel {
	return parcel{Secret: secret, Filler: strings.Repeat("filler", 100), Left: left}
}

// courier is a family of workflows that pass the secret through every kind of stored value.
type courier struct {
	sign    *perdure.Signal[parcel]
	stamp   *perdure.Promise[parcel]
	weigh   *perdure.Activity[parcel, parcel]
	inner   *perdure.Workflow[parcel, parcel]
	outer   *perdure.Workflow[parcel, parcel]
	weighed atomic.Int64
}

func newCourier() *courier {
	c := &courier{sign: perdure.NewSignal[parcel]("sign"), stamp: perdure.NewPromise[parcel]("stamp")}
	c.weigh = perdure.NewActivity("weigh", func(ctx context.Context, p parcel) (parcel, error) {
		c.weighed.Add(1)
		if perdure.Attempt(ctx) == 1 {
			return parcel{}, fmt.Errorf("the scales are busy")
		}
		return p, nil
	}, perdure.Constant(3, time.Millisecond))

	c.inner = perdure.NewWorkflow("inner", func(ctx perdure.WorkflowCtx, p parcel) (parcel, error) {
		if _, err := c.weigh.Run(ctx, p); err != nil {
			return p, err
		}
		got, err := c.sign.Receive(ctx)
		if err != nil {
			return p, err
		}
		_, err = c.stamp.Await(ctx)
		return got, err
	})

	c.outer = perdure.NewWorkflow("outer", func(ctx perdure.WorkflowCtx, p parcel) (parcel, error) {
		if p.Left > 0 {
			p.Left--
			return p, c.outer.ContinueAsNew(p)
		}

		child, err := c.inner.Start(ctx, p, perdure.RawKey("in-"+ctx.Self().Key))
		if err != nil {
			return p, err
		}
		if err := c.sign.Send(ctx, child, p); err != nil {
			return p, err
		}

		if err := c.stamp.Resolve(ctx, child, p); err != nil {
			return p, err
		}
		got, err := child.Result(ctx)
		if err != nil {
			return p, err
		}

		if o, err := child.Poll(ctx); err != nil || o.Value != got {
			return p, fmt.Errorf("the child is polled as %s, %w", o.Status, err)
		}
		own, err := perdure.Do(ctx, "note", func(context.Context) (parcel, error) { return got, nil })
		if err != nil {
			return p, err
		}

		got, err = c.sign.Receive(ctx)
		if err != nil || got != own {
			return p, fmt.Errorf("another parcel was signed for: %w", err)
		}
		return got, nil
	})

	return c
}

func (c *courier) defs() perdure.Group { return perdure.Group{c.weigh, c.inner, c.outer} }

// deliver sends the secret through all workflows. If crash is set, it closes and opens the app in
// the middle.
func (c *courier) deliver(t *testing.T, s *site, crash bool) {
	t.Helper()
	app := s.open(c.defs())
	cl := caller(t, app)
	want := newParcel(0)
	x, err := c.outer.Start(cl, newParcel(2), perdure.RawKey("k"))
	if err != nil {
		t.Fatal(err)
	}

	reason(t, app, x, "waits for signal sign")
	if crash {
		app = s.reopen(app, c.defs())
		cl = caller(t, app)
	}

	if _, err := c.outer.Start(cl, newParcel(2), perdure.RawKey("k")); err != nil {
		t.Errorf("a repeated start does not attach: %v", err)
	}
	_, err = c.outer.Start(cl, newParcel(3), perdure.RawKey("k"))
	wantError(t, "a start with another input", err, perdure.ErrConflict, "outer", "k")
	if err := c.sign.Send(cl, x, want); err != nil {
		t.Fatal(err)
	}

	got, err := x.Result(cl)
	equal(t, "the parcel", got, err, want)
	o, err := x.Poll(cl)
	equal(t, "the polled parcel", o.Value, err, want)
	if n := c.weighed.Load(); n != 2 {
		t.Errorf("weighed %d times, want 2", n)
	}

	for e, err := range app.Histories().Events(t.Context(), c.inner.Execution(perdure.RawKey("in-k"))) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == "step_completed" && (!bytes.Contains(e.Input, []byte(secret)) || !bytes.Contains(e.Output, []byte(secret))) {
			t.Errorf("the app cannot show its own history: %s and %s (%s, %s)", e.Input, e.Output, e.InputIs, e.OutputIs)
		}
	}

	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
}

// find returns the places in the store and the blobs that contain a text.
func (s *site) find(text, blobs string) (places []string) {
	s.t.Helper()
	look := func(place string, content []byte) {
		if bytes.Contains(content, []byte(text)) || bytes.Contains(content, []byte(fmt.Sprintf("%x", text))) {
			places = append(places, place)
		}
	}

	walk := func(dir, prefix string) {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasPrefix(path, prefix) {
				return err
			}
			content, err := os.ReadFile(path)
			look(path, content)
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}

	walk(blobs, "")
	switch s.kind {
	case "sqlite":
		walk(filepath.Dir(s.path), s.path)
	case "postgres":
		for _, table := range s.sql(`select table_name from information_schema.tables where table_schema = 'perdure'`) {
			for _, row := range s.sql(`select x::text from perdure.` + table[0] + ` x`) {
				look(table[0], []byte(row[0]))
			}
		}
	}

	return places
}

// The secret passes through inputs, outputs, signals, promises, children, polls, attempts and runs
// that continue as new. The test does not find it in the store, the blobs or the logs. Without
// encryption the test finds the secret, which shows that the search works.
func TestNothingIsInTheClear(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		blobs, log := t.TempDir(), &logged{}
		s.cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s.cfg.Payloads = payload.Codec{Chain: []payload.Transform{payload.Encrypt(ring(t, "k1")), payload.Offload(payload.Dir(blobs), 400)}}
		newCourier().deliver(t, s, s.kind != "memory")
		if places := s.find(secret, blobs); places != nil {
			t.Errorf("the secret is in %v", places)
		}
		if strings.Contains(log.String(), secret) {
			t.Errorf("the secret was logged:\n%s", log)
		}
		if len(s.find("", blobs)) == 0 {
			t.Error("nothing was offloaded")
		}
		if s.kind == "memory" {
			return
		}

		s.cfg.Payloads = payload.Codec{}
		open := newSite(t, s.kind)
		newCourier().deliver(t, open, true)
		if places := open.find(secret, blobs); len(places) == 0 {
			t.Error("the secret is not even found in the clear: the search is wrong")
		}
	})
}

// The settings change while executions run: encryption is switched on, the format changes, keys
// rotate, and everything is switched off. The engine recognises steps, repeats nothing, and reads
// payloads of every format.
func TestSettingsMayChange(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		var ran atomic.Int64
		work := perdure.NewActivity("work", func(_ context.Context, p parcel) (parcel, error) {
			ran.Add(1)
			p.Left++
			return p, nil
		})

		next := perdure.NewSignal[parcel]("next")
		kid := perdure.NewWorkflow("kid", func(_ perdure.WorkflowCtx, p parcel) (parcel, error) { return p, nil })
		wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, p parcel) (int, error) {
			sum := 0
			for {
				out, err := work.Run(ctx, p)
				if err != nil {
					return 0, err
				}
				if _, err := kid.Run(ctx, out); err != nil {
					return 0, err
				}
				sum += out.Left
				if p, err = next.Receive(ctx); err != nil || p.Secret == "" {
					return sum, err
				}
			}
		})

		blobs := payload.Dir(t.TempDir())
		off := func(k payload.Keyring) []payload.Transform {
			return []payload.Transform{zstd.Compress(1), payload.Encrypt(k), payload.Offload(blobs, 120)}
		}
		var app *perdure.App
		x := wf.Execution(perdure.RawKey("k"))

		want := 0
		for i, codec := range []payload.Codec{
			{},
			{Chain: off(ring(t, "k1"))},
			{Format: payload.Msgpack, Chain: off(ring(t, "k2", "k1"))},
			{Format: payload.Msgpack, OldChain: off(ring(t, "k2", "k1"))},
			{Chain: off(ring(t, "k3", "k2", "k1"))[:2], OldChain: off(ring(t, "k1"))[2:]},
			{OldChain: off(ring(t, "k1", "k2", "k3"))},
		} {
			if app != nil {
				if err := app.Close(); err != nil {
					t.Fatal(err)
				}
			}

			s.cfg.Payloads = codec
			app = s.open(work, kid, wf)
			if i == 0 {
				if _, err := wf.Start(caller(t, app), newParcel(0), perdure.RawKey("k")); err != nil {
					t.Fatal(err)
				}
			} else if err := next.Send(caller(t, app), x, newParcel(i)); err != nil {
				t.Fatal(err)
			}

			want += i + 1
			// A repeated start attaches, no matter in which format the first input was stored.
			// Another input is still a conflict.
			if _, err := wf.Start(caller(t, app), newParcel(0), perdure.RawKey("k")); err != nil {
				t.Errorf("settings %d: a repeated start: %v", i, err)
			}
			_, err := wf.Run(caller(t, app), newParcel(100), perdure.RawKey("k"))
			wantError(t, "another input", err, perdure.ErrConflict, "wf", "k")
			got, err := kid.Run(caller(t, app), newParcel(0), perdure.RawKey("one"))
			equal(t, "a repeated run", got, err, newParcel(0))
			got, err = kid.Run(caller(t, app), newParcel(1), perdure.RawKey("two"), perdure.RequestID("two"))
			equal(t, "a repeated run with its request id", got, err, newParcel(1))

			eventually(t, "the work is done", func() bool {
				info, _ := app.Executions().Describe(t.Context(), x)
				return ran.Load() == int64(i+1) || strings.Contains(info.Reason, "blocked")
			})

			reason(t, app, x, "waits for signal next")
		}

		if err := next.Send(caller(t, app), x, parcel{}); err != nil {
			t.Fatal(err)
		}
		got, err := x.Result(caller(t, app))
		equal(t, "the sum", got, err, want)
		if ran.Load() != 6 {
			t.Errorf("the work was done %d times", ran.Load())
		}
	})
}

// If a key is removed or a transform is unknown, the executions that need it are blocked, with a
// reason that says so. They continue when the key or the transform is back.
func TestRemovedKeyBlocks(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		var ran atomic.Int64
		next := perdure.NewSignal[string]("next")
		wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, in string) (string, error) {
			got, err := perdure.Do(ctx, "step", func(context.Context) (string, error) { ran.Add(1); return in + secret, nil })
			if err != nil {
				return "", err
			}
			word, err := next.Receive(ctx)
			return got + word, err
		})

		with := func(c payload.Codec) *perdure.App {
			s.cfg.Payloads = c
			return s.open(wf)
		}

		encrypted := func(k payload.Keyring) payload.Codec {
			return payload.Codec{Chain: []payload.Transform{payload.Encrypt(k)}}
		}
		app := with(encrypted(ring(t, "k1")))
		x := mustStart(t, caller(t, app), wf, "in ", perdure.RawKey("k"))
		reason(t, app, x, "waits for signal next")
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}

		app = with(encrypted(ring(t, "k2")))
		if err := next.Send(caller(t, app), x, "out"); err != nil {
			t.Fatal(err)
		}
		info := reason(t, app, x, `input of workflow wf: payload (json+aes-gcm) cannot be read: key "k1": the key is not in the keyring`)
		if strings.Contains(info.Reason, secret) {
			t.Errorf("the reason quotes the content: %s", info.Reason)
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}

		app = with(payload.Codec{})
		reason(t, app, x, `"json+aes-gcm", and the payload settings of this app have no transform "aes-gcm"`)
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
		app = with(encrypted(ring(t, "k2", "k1")))
		got, err := x.Result(caller(t, app))
		equal(t, "the result", got, err, "in "+secret+"out")
		if ran.Load() != 1 {
			t.Errorf("the step ran %d times", ran.Load())
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}

		app = with(encrypted(ring(t, "k3")))
		_, err = x.Result(caller(t, app))
		wantError(t, "a result that cannot be read", err, perdure.ErrBlocked, "output of workflow wf", `key "k2"`)

		for e, err := range app.Histories().Events(t.Context(), x) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == "step_completed" && (e.Output != nil || !strings.Contains(e.OutputIs, "bytes of json+aes-gcm")) {
				t.Errorf("history shows %q, %q", e.Output, e.OutputIs)
			}
		}
	})
}

// The key that an execution gets from its input is the same in every format.
func TestKeysDoNotDependOnTheFormat(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, f := range []payload.Format{payload.JSON, payload.Msgpack} {
		s := newSite(t, "memory")
		s.cfg.Payloads.Format = f
		wf := perdure.NewWorkflow("wf", func(perdure.WorkflowCtx, parcel) (string, error) { return "", nil })
		app := s.open(wf)
		x := mustStart(t, caller(t, app), wf, newParcel(1))
		keys = append(keys, x.Ref.Key)
	}
	if len(slices.Compact(keys)) != 1 {
		t.Errorf("keys %v", keys)
	}
}

// aged is a blob store whose blobs are all old.
type aged struct{ payload.Store }

func (a aged) List(ctx context.Context, prefix string) iter.Seq2[payload.Blob, error] {
	return func(yield func(payload.Blob, error) bool) {
		for b, err := range a.Store.List(ctx, prefix) {
			b.Stored = b.Stored.Add(-48 * time.Hour)
			if !yield(b, err) {
				return
			}
		}
	}
}

// A sweep removes only blobs without references. It keeps young blobs, blobs of another store, and
// blobs of a history, an input, an outcome or a waiting signal.
func TestSweepOfPayloads(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		blobs := payload.Dir(t.TempDir())
		s.cfg.Payloads = payload.Codec{Chain: []payload.Transform{payload.Encrypt(ring(t, "k1")), payload.Offload(aged{blobs}, 300)}}
		next := perdure.NewSignal[parcel]("next")

		wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, p parcel) (parcel, error) {
			got, err := perdure.Do(ctx, "step", func(context.Context) (parcel, error) { return p, nil })
			if err != nil {
				return p, err
			}
			for range p.Left {
				if got, err = next.Receive(ctx); err != nil {
					return p, err
				}
			}
			return got, nil
		})

		app := s.open(wf)
		c := caller(t, app)
		if _, err := wf.Run(c, newParcel(0), perdure.RawKey("done")); err != nil {
			t.Fatal(err)
		}
		open := mustStart(t, c, wf, newParcel(2), perdure.RawKey("open"))
		if err := next.Send(c, open, newParcel(7)); err != nil {
			t.Fatal(err)
		}

		reason(t, app, open, "waits for signal next")
		used := len(blobsIn(t, blobs))
		if n, err := app.SweepPayloads(t.Context(), time.Hour); err != nil || n != 0 {
			t.Errorf("removed %d blobs that are in use, %v", n, err)
		}

		// A refused start has already stored the blob of its input, and nothing refers to the blob.
		_, err := wf.Start(c, newParcel(9), perdure.RawKey("open"))
		wantError(t, "another input", err, perdure.ErrConflict, "open")
		if len(blobsIn(t, blobs)) != used+1 {
			t.Fatalf("%d blobs, want one more than %d", len(blobsIn(t, blobs)), used)
		}
		const foreign = "another-store/0123456789abcdef0123456789abcdef"
		if err := blobs.Put(t.Context(), foreign, []byte("x")); err != nil {
			t.Fatal(err)
		}

		if n, err := app.SweepPayloads(t.Context(), 72*time.Hour); err != nil || n != 0 {
			t.Errorf("removed %d young blobs, %v", n, err)
		}
		if n, err := app.SweepPayloads(t.Context(), time.Hour); err != nil || n != 1 {
			t.Errorf("removed %d blobs, want 1, %v", n, err)
		}
		if got := blobsIn(t, blobs); len(got) != used+1 || !slices.Contains(got, foreign) {
			t.Errorf("left are %v", got)
		}
		_, err = app.SweepPayloads(t.Context(), time.Minute)
		wantError(t, "a sweep of what is too young", err, perdure.ErrInvalid, "1m", "1h")
		if err := next.Send(c, open, newParcel(8)); err != nil {
			t.Fatal(err)
		}

		got, err := open.Result(c)
		equal(t, "the result", got, err, newParcel(8))
		got, err = wf.Execution(perdure.RawKey("done")).Result(c)
		equal(t, "the other result", got, err, newParcel(0))
		plain := newSite(t, "memory").open(wf)
		_, err = plain.SweepPayloads(t.Context(), time.Hour)
		wantError(t, "a sweep without an offload", err, perdure.ErrInvalid, "no offload")
	})
}

func blobsIn(t *testing.T, s payload.Store) (keys []string) {
	t.Helper()
	for b, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, b.Key)
	}
	return keys
}

// The blob store is unreachable when a step has done its work, when code reads its history, and
// when a run ends. The engine waits for the blob store: it repeats no step, and no execution fails.
// A client gets an error after a while.
func TestBlobsThatAreAway(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"memory", "postgres"}, func(t *testing.T, s *site) {
		s.cfg.IdleAfter = time.Nanosecond
		blobs := &away{Store: payload.Dir(t.TempDir())}
		s.cfg.Payloads = payload.Codec{Chain: []payload.Transform{payload.Offload(blobs, 100)}}
		var ran atomic.Int64
		next := perdure.NewSignal[string]("next")

		wf := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, n int) (parcel, error) {
			got, err := perdure.Do(ctx, "step", func(context.Context) (parcel, error) {
				ran.Add(1)
				blobs.gone.Store(true) // from here on
				return newParcel(n), nil
			}, perdure.Constant(1, time.Second))
			if err != nil {
				return got, err
			}
			_, err = next.Receive(ctx)
			return got, err
		})

		app := s.open(wf)
		c := caller(t, app)
		x := mustStart(t, c, wf, 5, perdure.RawKey("k"))
		eventually(t, "the step waits for the blobs", func() bool { return blobs.refused.Load() >= 2 })
		blobs.gone.Store(false)
		reason(t, app, x, "waits for signal next")
		blobs.gone.Store(true)
		before := blobs.refused.Load()
		if err := next.Send(c, x, ""); err != nil {
			t.Fatal(err)
		}

		eventually(t, "the code waits for the blobs", func() bool { return blobs.refused.Load() >= before+2 })
		blobs.gone.Store(false)
		got, err := x.Result(c)
		equal(t, "the result", got, err, newParcel(5))
		if ran.Load() != 1 {
			t.Errorf("the step ran %d times", ran.Load())
		}
		blobs.gone.Store(true)
		_, err = x.Result(c)
		wantError(t, "a result whose blob is away", err, perdure.ErrUnavailable, "output of workflow wf", "get blob", "no route")
	})
}

// away is a blob store that the test can make unreachable.
type away struct {
	payload.Store
	gone    atomic.Bool
	refused atomic.Int64
}

func (a *away) check() error {
	if a.gone.Load() {
		a.refused.Add(1)
		return errors.New("no route")
	}
	return nil
}

func (a *away) Put(ctx context.Context, key string, data []byte) error {
	if err := a.check(); err != nil {
		return err
	}
	return a.Store.Put(ctx, key, data)
}

func (a *away) Get(ctx context.Context, key string) ([]byte, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	return a.Store.Get(ctx, key)
}

// inflating is a transform that makes payloads larger.
type inflating struct{ payload.Transform }

func (inflating) Name() string { return "hot-air" }

func (inflating) Seal(_ context.Context, _ payload.Meta, data []byte) ([]byte, bool, error) {
	return bytes.Repeat(data, 100), true, nil
}

func (inflating) Open(_ context.Context, _ payload.Meta, sealed []byte) ([]byte, error) {
	return sealed[:len(sealed)/100], nil
}

func (inflating) Digester(context.Context) (func([]byte) []byte, error) { return nil, nil }

// Limits apply to encoded values and to stored payloads. An offloaded value may be larger than the
// store accepts.
func TestSizesOfPayloads(t *testing.T) {
	t.Parallel()
	echo := perdure.NewWorkflow("echo", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		got, err := perdure.Do(ctx, "make", func(context.Context) (string, error) { return strings.Repeat("x", n), nil })
		return len(got), err
	})

	word := perdure.NewWorkflow("word", func(_ perdure.WorkflowCtx, in string) (string, error) { return in, nil })
	for what, c := range map[string]struct {
		codec      payload.Codec
		fits, over int
		says       []string
	}{
		"plain":     {payload.Codec{}, 900, 1100, []string{"1102 bytes", "at most 1000"}},
		"encrypted": {payload.Codec{Chain: []payload.Transform{payload.Encrypt(ring(t, "k1"))}}, 990, 1100, []string{"1102 bytes", "at most 1000"}},
		"offloaded": {
			payload.Codec{Chain: []payload.Transform{payload.Offload(payload.Dir(t.TempDir()), 500)}, MaxPlain: 5000},
			4900, 5100,
			[]string{"5102 bytes", "at most 5000"},
		},
		"inflated": {
			payload.Codec{Chain: []payload.Transform{inflating{}}}, 10, 100, []string{"as it would be stored (json+hot-air)", "at most 2024"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "memory")
			s.cfg.MaxPayload, s.cfg.Payloads = 1000, c.codec
			cl := caller(t, s.open(echo, word))
			n, err := echo.Run(cl, c.fits)
			equal(t, "a step that fits", n, err, c.fits)
			fit := strings.Repeat("y", c.fits)
			got, err := word.Run(cl, fit, perdure.RawKey("fit"))
			equal(t, "a value that fits", got, err, fit)
			_, err = word.Run(cl, strings.Repeat("y", c.over), perdure.RawKey("over"))
			wantError(t, "a value that does not fit", err, perdure.ErrInvalid, c.says...)
			_, err = echo.Run(cl, c.over)
			wantError(t, "a step that does not fit", err, perdure.ErrInvalid, append(c.says, "result of step make")...)
		})
	}
}
