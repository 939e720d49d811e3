package replies_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/engine/replies"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at(key string) model.Address {
	return model.Address{Tenant: "default", Type: "entity:log", Key: key}
}

func take(do model.TakeVerb, key string, after int64) *model.ItemsTake {
	return &model.ItemsTake{Entity: at(key), ID: "s", Do: do, After: after}
}

// items returns numbered items.
func items(first, n int) (all []model.Payload) {
	for i := range n {
		all = append(all, model.Payload{Data: fmt.Append(nil, first+i)})
	}
	return all
}

func send(key string, first, n int) *model.ItemsSend {
	return &model.ItemsSend{Entity: at(key), ID: "s", First: int64(first), Items: items(first, n)}
}

func open(t *testing.T, h *replies.Buffers, key string) {
	t.Helper()
	if _, err := h.Take(t.Context(), take(model.TakeOpen, key, 0)); err != nil {
		t.Fatal(err)
	}
}

// next takes a page and checks its numbers.
func next(t *testing.T, h *replies.Buffers, key string, after, n int64) model.ItemsPage {
	t.Helper()
	page, err := h.Take(t.Context(), take(model.TakeNext, key, after))
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(page.Items)) != n {
		t.Fatalf("after %d: %d items, want %d", after, len(page.Items), n)
	}
	for i := range page.Items {
		if got, want := string(page.Items[i].Data), fmt.Sprint(after+int64(i)+1); got != want {
			t.Fatalf("item %s, want %s", got, want)
		}
	}
	return page
}

// A buffer accepts a bounded number of items ahead of the caller, and more when the caller has
// taken some.
func TestRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := replies.New(replies.Config{})
		defer h.Close()
		open(t, h, "a")

		done := make(chan struct{})
		go func() {
			defer close(done)
			for first := 1; first <= 200; {
				last, err := h.Send(t.Context(), send("a", first, min(50, 201-first)))
				if err != nil {
					t.Error(err)
					return
				}
				first = int(last) + 1
			}
		}()

		for after := int64(0); after <= 200; after += 10 {
			if _, err := h.Take(t.Context(), take(model.TakeKeep, "a", after)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the worker has sent what it can
			if after < 200 {
				next(t, h, "a", after, min(model.MaxItemsAhead, 200-after))
			}
		}
		<-done
	})
}

// A large item waits until the caller has taken all items before it. Then there is room for this
// item, and for no other.
func TestBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := replies.New(replies.Config{})
		defer h.Close()
		open(t, h, "a")
		large := model.Payload{Data: []byte(strings.Repeat("x", model.MaxBytesAhead+1))}
		r := &model.ItemsSend{Entity: at("a"), ID: "s", First: 1, Items: []model.Payload{{Data: []byte("1")}, large}}
		if last, err := h.Send(t.Context(), r); err != nil || last != 1 {
			t.Fatalf("the owner has %d items, %v; want 1", last, err)
		}
		next(t, h, "a", 0, 1)
		go func() { _, _ = h.Take(t.Context(), take(model.TakeKeep, "a", 1)) }()
		if last, err := h.Send(t.Context(), r); err != nil || last != 2 {
			t.Errorf("the owner has %d items, %v; want 2", last, err)
		}
	})
}

// Both sides may repeat a request. If the worker sends an item again, the buffer still has it once.
// If the caller takes a page again, it gets the same page. The page with the last item says that
// the stream has ended, and so does every page after it.
func TestRepetition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := replies.New(replies.Config{})
		defer h.Close()
		open(t, h, "a")
		for _, r := range []*model.ItemsSend{send("a", 1, 3), send("a", 1, 3), send("a", 2, 4), send("a", 6, 1)} {
			if _, err := h.Send(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		next(t, h, "a", 0, 6)
		next(t, h, "a", 0, 6)
		if _, err := h.Send(t.Context(), send("a", 9, 1)); !fault.Is(err, fault.Conflict) {
			t.Errorf("a gap: %v", err)
		}
		if _, err := h.Take(t.Context(), take(model.TakeNext, "a", 7)); !fault.Is(err, fault.Invalid) {
			t.Errorf("a caller from the future: %v", err)
		}

		end := &model.ItemsSend{Entity: at("a"), ID: "s", First: 7, Items: items(7, 1), Ended: true, Failure: &model.Failure{Message: "no"}}
		for range 2 {
			if last, err := h.Send(t.Context(), end); err != nil || last != 7 {
				t.Fatal(last, err)
			}
		}
		for _, after := range []int64{6, 7, 7} {
			if p := next(t, h, "a", after, 7-after); !p.Ended || p.Failure.Message != "no" {
				t.Errorf("%+v does not end", p)
			}
		}
		if _, err := h.Take(t.Context(), take(model.TakeNext, "a", 3)); !fault.Is(err, fault.Conflict) {
			t.Errorf("a caller from the past: %v", err)
		}
	})
}

// A request waits for a while. The next request of the same side replaces it.
func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := replies.New(replies.Config{})
		defer h.Close()
		open(t, h, "a")
		begun := time.Now()
		next(t, h, "a", 0, 0)
		if took := time.Since(begun); took != replies.DefaultWait {
			t.Errorf("an empty page comes after %s", took)
		}

		begun = time.Now()
		got := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				_, err := h.Take(t.Context(), take(model.TakeNext, "a", 0))
				if err != nil {
					t.Error(err)
				}
				got <- time.Since(begun)
			}()
			synctest.Wait()
		}
		if took := <-got; took != 0 {
			t.Errorf("the first of two requests waits for %s", took)
		}
		if took := <-got; took != replies.DefaultWait {
			t.Errorf("the second of two requests waits for %s", took)
		}

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := h.Take(ctx, take(model.TakeNext, "a", 0)); !fault.Is(err, fault.Canceled) {
			t.Errorf("a caller that gives up: %v", err)
		}
	})
}

// The worker learns immediately that the caller leaves, and both learn that the node stops.
func TestEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := replies.New(replies.Config{})
		open(t, h, "a")
		open(t, h, "b")
		errs := make(chan error, 3)
		go func() {
			_, err := h.Send(t.Context(), send("a", 1, 0))
			errs <- err
		}()
		synctest.Wait()
		begun := time.Now()
		if _, err := h.Take(t.Context(), take(model.TakeLeave, "a", 0)); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; !fault.Is(err, fault.NotFound) || time.Since(begun) > 0 {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		if _, err := h.Take(t.Context(), take(model.TakeNext, "a", 0)); !fault.Is(err, fault.NotFound) {
			t.Errorf("a stream that is left: %v", err)
		}

		go func() {
			_, err := h.Send(t.Context(), send("b", 1, 0))
			errs <- err
		}()
		go func() {
			_, err := h.Take(t.Context(), take(model.TakeNext, "b", 0))
			errs <- err
		}()
		synctest.Wait()
		h.Close()
		for range 2 {
			if err := <-errs; !fault.Is(err, fault.Unavailable) {
				t.Errorf("the node stops: %v", err)
			}
		}
		if _, err := h.Take(t.Context(), take(model.TakeOpen, "c", 0)); !fault.Is(err, fault.Unavailable) {
			t.Errorf("the node has stopped: %v", err)
		}
	})
}

// If a side is silent for too long, the stream ends. It also ends if the caller is not silent but
// reads nothing.
func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := replies.New(replies.Config{})
		defer h.Close()

		open(t, h, "gone") // the caller is silent
		time.Sleep(2 * replies.DefaultSilence)
		if n := h.Count(); n != 0 {
			t.Errorf("%d streams without a caller are left", n)
		}

		open(t, h, "mute") // the worker is silent
		var err error
		begun := time.Now()
		for err == nil {
			_, err = h.Take(t.Context(), take(model.TakeNext, "mute", 0))
		}
		if took := time.Since(begun); !fault.Is(err, fault.Unavailable) || took < replies.DefaultSilence || took > 2*replies.DefaultSilence {
			t.Errorf("after %s: %v", took, err)
		}
		if _, err := h.Send(t.Context(), send("mute", 1, 1)); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a late item: %v", err)
		}

		open(t, h, "slow") // the caller reads one item in five minutes, then none
		if _, err := h.Send(t.Context(), send("slow", 1, 5)); err != nil {
			t.Fatal(err)
		}
		next(t, h, "slow", 0, 5)
		keep := func(after int64, d time.Duration) {
			for begun := time.Now(); time.Since(begun) < d; time.Sleep(10 * time.Second) {
				_, _ = h.Take(t.Context(), take(model.TakeKeep, "slow", after))
				_, _ = h.Send(t.Context(), send("slow", 1, 5))
			}
		}
		for after := range int64(5) {
			keep(after, 5*time.Minute)
		}
		next(t, h, "slow", 4, 1)
		keep(4, replies.DefaultIdle+time.Minute)
		if _, err := h.Take(t.Context(), take(model.TakeNext, "slow", 4)); !fault.Is(err, fault.Timeout) {
			t.Errorf("a caller that has read nothing: %v", err)
		}
	})
}

// The streams of an entity, of a tenant and of a node are bounded, and make room when they end.
func TestBounds(t *testing.T) {
	t.Parallel()
	h := replies.New(replies.Config{Streams: 5, TenantStreams: 4, EntityStreams: 2})
	defer h.Close()
	try := func(tenant, key, id string) error {
		_, err := h.Take(t.Context(), &model.ItemsTake{Entity: model.Address{Tenant: tenant, Type: "entity:log", Key: key}, ID: id, Do: model.TakeOpen})
		return err
	}
	for _, s := range [][3]string{{"a", "1", "x"}, {"a", "1", "y"}, {"a", "1", "y"}, {"a", "2", "x"}, {"a", "2", "y"}, {"b", "1", "x"}} {
		if err := try(s[0], s[1], s[2]); err != nil {
			t.Fatal(s, err)
		}
	}
	for s, want := range map[[3]string]string{{"a", "1", "z"}: "the owner has 5", {"b", "2", "x"}: "the owner has 5"} {
		if err := try(s[0], s[1], s[2]); !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", s, err, want)
		}
	}

	leave := model.ItemsTake{Entity: model.Address{Tenant: "b", Type: "entity:log", Key: "1"}, ID: "x", Do: model.TakeLeave}
	if _, err := h.Take(t.Context(), &leave); err != nil {
		t.Fatal(err)
	}
	if err := try("a", "3", "x"); !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "the tenant has 4") {
		t.Errorf("a stream too many of a tenant: %v", err)
	}
	leave.Entity.Tenant = "a"
	if _, err := h.Take(t.Context(), &leave); err != nil {
		t.Fatal(err)
	}
	if err := try("a", "2", "z"); !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "the entity has 2") {
		t.Errorf("a stream too many of an entity: %v", err)
	}
	if err := try("a", "1", "z"); err != nil {
		t.Error(err)
	}
}
