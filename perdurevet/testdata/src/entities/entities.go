// Package entities is about the code of entities and services, and workflows that call them.
package entities

import (
	"context"

	"github.com/perdure/perdure"
)

type account struct{ Cents int }

var (
	accounts = perdure.NewEntity[account]("account")
	service  = perdure.NewService("gateway")
	review   = perdure.DeclareWorkflow[string, int]("review")
	seen     int
)

type gateway struct {
	app  *perdure.App
	hits int
	rate int
}

func (g *gateway) wrongField(ctx perdure.EntityCtx, n int) (int, error) {
	g.hits++ // want `entity handler keeps state in a field of its receiver g, which is lost with the process and differs between nodes; keep it in the state of the entity`
	return g.hits, nil
}

func (g *gateway) wrongWait(ctx perdure.EntityCtx, n int) (int, error) {
	return review.Run(g.app.With(context.Background()), "x") // want `App app used by an entity: waiting for a call could cause a deadlock`
}

var wrongPackage = perdure.NewOperation(accounts, "count", func(ctx perdure.EntityCtx, s *account, n int) (int, error) {
	seen++ // want `package variable seen changed by an entity`
	return seen, nil
})

func wrongCaptured() *perdure.RPC[int, int] {
	calls := 0
	return perdure.NewRPC(service, "calls", func(ctx perdure.EntityCtx, n int) (int, error) {
		calls++ // want `a service changes calls, which is declared outside it`
		return calls, nil
	})
}

type keeps struct {
	ctx perdure.EntityCtx // want `EntityCtx kept in a field`
}

func (g *gateway) right(ctx perdure.EntityCtx, n int) (int, error) {
	_, err := review.Start(ctx, ctx.Key())
	return n * g.rate, err
}

var rightState = perdure.NewOperation(accounts, "deposit", func(ctx perdure.EntityCtx, s *account, n int) (int, error) {
	s.Cents += n
	return s.Cents, nil
})

var rightView = perdure.NewView(accounts, "cents", func(s account, _ int) (int, error) { return s.Cents, nil })

var wrongView = perdure.NewView(accounts, "seen", func(s account, n int) (int, error) {
	seen = n // want `package variable seen changed by an entity`
	return s.Cents, nil
})

var declared = perdure.DeclareOperation[int, int]("account", "later")

func later(ctx perdure.EntityCtx, s *account, n int) (int, error) {
	seen += n // want `package variable seen changed by an entity`
	return n, nil
}

var bound = perdure.BindOperation(accounts, declared, later)

// ---- workflows that call them

func wrongDropped(ctx perdure.WorkflowCtx, _ string) (int, error) {
	rightState.Send(ctx, "a", 1)            // want `the error of rightState\.Send is dropped`
	rightState.Go(ctx, "a", 1)              // want `the future of rightState\.Go is dropped`
	for k := range map[string]int{"a": 1} { // want `durable call rightState\.Call in the order of a map`
		if _, err := rightState.Call(ctx, k, 1); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func rightCalls(ctx perdure.WorkflowCtx, _ string) (int, error) {
	if _, _, err := accounts.Get(ctx, "a"); err != nil {
		return 0, err
	}
	return rightState.Go(ctx, "a", 1).Get(ctx)
}
