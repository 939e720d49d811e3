package main

import (
	"context"
	"errors"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type (
	Account  struct{ Cents int }
	Amount   struct{ Cents int }
	Transfer struct {
		From, To string
		Cents    int
	}
)

var (
	Accounts = perdure.NewEntity[Account]("account")
	Deposit  = perdure.NewOperation(Accounts, "deposit", func(ctx perdure.EntityCtx, s *Account, in Amount) (int, error) {
		s.Cents += in.Cents
		if s.Cents > 1000_00 {
			_, err := Review.Start(ctx, ctx.Key()) // an entity may start, never wait
			return s.Cents, err
		}
		return s.Cents, nil
	})
	Withdraw = perdure.NewOperation(Accounts, "withdraw", func(ctx perdure.EntityCtx, s *Account, in Amount) (int, error) {
		if s.Cents < in.Cents {
			return s.Cents, perdure.Permanent(errors.New("insufficient funds"))
		}
		s.Cents -= in.Cents
		return s.Cents, nil
	})
	Close = perdure.NewOperation(Accounts, "close", func(ctx perdure.EntityCtx, s *Account, _ perdure.Void) (perdure.Void, error) {
		ctx.Delete()
		return perdure.Void{}, nil
	})
	Cents  = perdure.NewView(Accounts, "cents", func(s Account, _ perdure.Void) (int, error) { return s.Cents, nil })
	Review = perdure.DeclareWorkflow[string, perdure.Void]("review")

	Move = perdure.NewWorkflow("move", func(ctx perdure.WorkflowCtx, t Transfer) (perdure.Void, error) {
		return perdure.Void{}, ctx.Lock(perdure.LockSet{Accounts.Ref(t.From), Accounts.Ref(t.To)}, func(ctx perdure.WorkflowCtx) error {
			if _, err := Withdraw.Call(ctx, t.From, Amount{t.Cents}); err != nil {
				return err
			}
			_, err := Deposit.Call(ctx, t.To, Amount{t.Cents})
			return err
		})
	})
)

func main() {
	app := embedded.MustOpen("memory:", Accounts, Move)
	defer app.Close()
	c := app.With(context.Background())
	_, _ = Deposit.Call(c, "acc-1", Amount{100})
	_ = Deposit.Send(c, "acc-1", Amount{100})
	_, _, _ = Accounts.Get(c, "acc-1")
	_, _ = Cents.Call(c, "acc-1", perdure.Void{})
}
