package e2e_test

import (
	"context"
	"errors"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/payload"
)

type till struct{ Cents int }

type change struct{ Cents int }

// shop has every definition that takes a request id.
type shop struct {
	tills             *perdure.Entity[till]
	deposit, withdraw *perdure.Operation[change, int]
	rates             *perdure.Service
	quote, convert    *perdure.RPC[change, int]
	paid, sent        *perdure.Signal[string]
	add, drop         *perdure.Update[change, int]
	order             *perdure.Workflow[string, string]
	courier           *perdure.Workflow[string, string]
	pack              *perdure.Activity[string, string]
}

func newShop() *shop {
	s := &shop{
		tills: perdure.NewEntity[till]("till"), rates: perdure.NewService("rates"),
		paid: perdure.NewSignal[string]("paid"), sent: perdure.NewSignal[string]("sent"),
		add: perdure.NewUpdate[change, int]("add"), drop: perdure.NewUpdate[change, int]("drop"),
	}

	s.deposit = perdure.NewOperation(s.tills, "deposit", func(_ perdure.EntityCtx, t *till, in change) (int, error) {
		t.Cents += in.Cents
		return t.Cents, nil
	})

	s.withdraw = perdure.NewOperation(s.tills, "withdraw", func(_ perdure.EntityCtx, t *till, in change) (int, error) {
		t.Cents -= in.Cents
		return t.Cents, nil
	})

	s.quote = perdure.NewRPC(s.rates, "quote", func(_ perdure.EntityCtx, in change) (int, error) { return in.Cents, nil }, perdure.Persisted())
	s.convert = perdure.NewRPC(s.rates, "convert", func(_ perdure.EntityCtx, in change) (int, error) { return -in.Cents, nil }, perdure.Persisted())
	s.pack = perdure.NewActivity("pack", func(_ context.Context, in string) (string, error) { return in, nil }, perdure.OnQueue("packing"))

	s.order = perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, in string) (string, error) {
		total := 0
		s.add.Handle(ctx, func(_ perdure.WorkflowCtx, in change) (int, error) { total += in.Cents; return total, nil })
		s.drop.Handle(ctx, func(_ perdure.WorkflowCtx, in change) (int, error) { total -= in.Cents; return total, nil })
		paid, err := s.paid.Receive(ctx)
		if err != nil {
			return "", err
		}
		sent, err := s.sent.Receive(ctx)
		return in + " " + paid + " " + sent, err
	})

	s.courier = perdure.NewWorkflow("courier", func(ctx perdure.WorkflowCtx, to string) (string, error) {
		target := perdure.Ref{Workflow: "order", Key: to}
		if err := s.paid.Send(ctx, target, "cash", perdure.RequestID("step")); err != nil {
			return "", err
		}
		if err := s.paid.Send(ctx, target, "cash", perdure.RequestID("step"), perdure.StepKey("again")); err != nil {
			return "", err
		}
		if err := s.sent.Send(ctx, target, "by bike", perdure.RequestID("step")); !errors.Is(err, perdure.ErrConflict) {
			return "", perdure.Permanent(errors.New("the second signal was not refused"))
		}
		return "refused", s.sent.Send(ctx, target, "by bike", perdure.RequestID("step 2"))
	})

	return s
}

func (s *shop) defs() perdure.Group {
	return perdure.Group{s.tills, s.rates, s.pack, s.order, s.courier}
}

// A request id belongs to one target, one name and one input. Any other request under the same id
// has no effect and gets an ErrConflict that names the id, the target and the first use. The first
// request gets the same answer when it is repeated. This holds for plain payloads, and for payloads
// that are encrypted differently each time.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	for name, sealed := range map[string]bool{"plain": false, "sealed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStores(t, kinds, func(t *testing.T, site *site) {
				if sealed {
					site.cfg.Payloads = sealingCodec(payload.Msgpack, ring(t, "k1"), payload.Dir(t.TempDir()))
				}
				s := newShop()
				apps := []*perdure.App{site.open(s.defs())}
				// One process owns the target, and the other one asks it through the store.
				if site.kind == "postgres" {
					apps = append(apps, site.open(s.defs()))
				}
				for i := range 4 {
					first, second := apps[i%len(apps)], apps[(i/2)%len(apps)]
					s.exercise(t, caller(t, first), caller(t, second), string(rune('a'+i)))
				}
			})
		})
	}
}

// exercise uses the request ids of one key correctly and incorrectly.
func (s *shop) exercise(t *testing.T, c, other perdure.Client, key string) {
	t.Helper()
	r := perdure.RequestID("r")

	got, err := s.deposit.Call(c, key, change{5}, r)
	equal(t, "the first deposit", got, err, 5)
	_, err = s.withdraw.Call(other, key, change{3}, r)
	wantError(t, "a withdrawal under the id of the deposit", err, perdure.ErrConflict, `"r"`, "till", key, `call "deposit"`, `call "withdraw"`)
	_, err = s.deposit.Call(other, key, change{6}, r)
	wantError(t, "another deposit under the same id", err, perdure.ErrConflict, "another input")
	wantError(t, "a one-way deposit", s.deposit.Send(other, key, change{5}, r), perdure.ErrConflict)
	got, err = s.deposit.Call(other, key, change{5}, r)
	equal(t, "the first deposit again", got, err, 5)
	got, err = s.withdraw.Call(c, key, change{3}, perdure.RequestID("r2"))
	equal(t, "a withdrawal under an id of its own", got, err, 2)

	got, err = s.quote.Call(c, key, change{7}, r)
	equal(t, "the first RPC", got, err, 7)
	_, err = s.convert.Call(other, key, change{7}, r)
	wantError(t, "another RPC under its id", err, perdure.ErrConflict, `call "quote"`)
	got, err = s.quote.Call(other, key, change{7}, r)
	equal(t, "the first RPC again", got, err, 7)

	exec := mustStart(t, c, s.order, "in", perdure.RawKey(key))
	for _, from := range []perdure.Client{c, other} {
		if err := s.paid.Send(from, exec, "card", r); err != nil {
			t.Errorf("the first signal: %v", err)
		}
	}
	wantError(t, "another signal under its id", s.sent.Send(other, exec, "by mail", r), perdure.ErrConflict, `"r"`, "order", key, `signal "paid"`, `signal "sent"`)
	wantError(t, "another value under its id", s.paid.Send(other, exec, "cash", r), perdure.ErrConflict, "another input")
	for _, from := range []perdure.Client{c, other} {
		got, err = s.add.Call(from, exec, change{4}, r)
		equal(t, "the first update", got, err, 4)
	}
	_, err = s.drop.Call(other, exec, change{4}, r)
	wantError(t, "another update under its id", err, perdure.ErrConflict, `update "add"`, `update "drop"`)
	_, err = s.add.Call(other, exec, change{1}, r)
	wantError(t, "another input under its id", err, perdure.ErrConflict)
	if err := s.sent.Send(c, exec, "by mail", perdure.RequestID("r2")); err != nil {
		t.Error(err)
	}
	word, err := exec.Result(other)
	equal(t, "the result", word, err, "in card by mail")

	with := perdure.RawKey(key + " with")
	again := mustStart(t, c, s.order, "in", with, r, s.paid.With("card"))
	mustStart(t, other, s.order, "in", with, r, s.paid.With("card"))
	_, err = s.order.Start(other, "in", with, r, s.sent.With("by mail"))
	wantError(t, "a start with another signal under its id", err, perdure.ErrConflict, `"r"`)
	if err := s.sent.Send(c, again, "by mail"); err != nil {
		t.Error(err)
	}
	word, err = again.Result(c)
	equal(t, "the result", word, err, "in card by mail")

	_, err = s.pack.Submit(c, "box", perdure.RawKey(key), r)
	if err != nil {
		t.Error(err)
	}
	_, err = s.pack.Submit(other, "bag", perdure.RawKey(key), r)
	wantError(t, "a task with another input under its id", err, perdure.ErrConflict)

	byStep := mustStart(t, c, s.order, "in", perdure.RawKey(key+" step"))
	word, err = s.courier.Run(other, key+" step", perdure.RawKey(key))
	equal(t, "steps that send", word, err, "refused")
	word, err = byStep.Result(c)
	equal(t, "the result", word, err, "in cash by bike")
}
