package chaos_test

import (
	"context"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// The code of the cluster is in three parts, and no process has all of them. So the nodes always
// work for each other.
const (
	codeFlows = "flows" // workflows with steps, children, timers, signals and tasks
	codeCells = "cells" // registers
	codeBank  = "bank"  // accounts, and the workflows that lock them
)

// ride is the input of a carousel: what it has received so far.
type ride struct{ Got []int }

var (
	carousels = perdure.DeclareWorkflow[ride, []int]("carousel")
	ticket    = perdure.NewSignal[int]("ticket")
	naps      = perdure.DeclareWorkflow[time.Duration, int]("nap")
	labours   = perdure.DeclareWorkflow[int, int]("labour")
	cube      = perdure.DeclareActivity[int, int]("cube", perdure.OnQueue("cubes"), perdure.Constant(1000, 10*time.Millisecond))
)

// lastTicket ends a carousel.
const lastTicket = -1

// flowDefinitions is the code of workflows.
func flowDefinitions(l ledger) perdure.Group {
	return perdure.Group{
		definitions(l),
		// A carousel receives numbers, a few per run, and returns all of them.
		carousels.Bind(func(ctx perdure.WorkflowCtx, r ride) ([]int, error) {
			for range 4 {
				n, err := ticket.Receive(ctx)
				if err != nil || n == lastTicket {
					return r.Got, err
				}
				r.Got = append(r.Got, n)
			}
			return nil, carousels.ContinueAsNew(r)
		}),
		naps.Bind(func(ctx perdure.WorkflowCtx, d time.Duration) (int, error) { return 1, ctx.Sleep(d) }),
		labours.Bind(func(ctx perdure.WorkflowCtx, n int) (int, error) {
			a := perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) { return cube.Run(ctx, n) })
			b, err := cube.Run(ctx, n+1)
			if err != nil {
				return 0, err
			}
			v, err := a.Get(ctx)
			return v + b, err
		}),
		cube.Bind(func(_ context.Context, n int) (int, error) { return n * n * n, nil }),
	}
}

// exchange is the input of a conditional write.
type exchange struct{ If, Then int }

var (
	cells = perdure.NewEntity[int]("cell")
	// swap writes a value and returns the previous one.
	swap = perdure.NewOperation(cells, "swap", func(_ perdure.EntityCtx, cell *int, v int) (int, error) {
		before := *cell
		*cell = v
		return before, nil
	})
	swapIf = perdure.NewOperation(cells, "swapIf", func(_ perdure.EntityCtx, cell *int, x exchange) (bool, error) {
		if *cell != x.If {
			return false, nil
		}
		*cell = x.Then
		return true, nil
	})
	readCell = perdure.NewOperation(cells, "read", func(_ perdure.EntityCtx, cell *int, _ perdure.Void) (int, error) { return *cell, nil })
	peek     = perdure.NewView(cells, "peek", func(cell int, _ perdure.Void) (int, error) { return cell, nil })
)

// clusterDefinitions returns the named parts of the code.
func clusterDefinitions(parts string, l ledger) (all perdure.Group) {
	for part := range strings.SplitSeq(parts, ",") {
		switch part {
		case codeFlows:
			all = append(all, flowDefinitions(l))
		case codeCells:
			all = append(all, cells)
		case codeBank:
			all = append(all, bankDefinitions())
		default:
			panic("no code " + part)
		}
	}
	return all
}
