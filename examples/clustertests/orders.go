package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
)

// order is the input of the workflow of orders.
type order struct {
	ID     string `json:"id"`
	Items  int64  `json:"item_count"`
	Amount int64  `json:"amount"`
}

// orderResult is the result of an order.
type orderResult struct {
	OrderID      string `json:"order_id"`
	Reservation  string `json:"reservation_id"`
	Transaction  string `json:"transaction_id"`
	Confirmation string `json:"confirmation"`
	Summary      string `json:"summary"`
}

// orderStep is a row that a step of an order has written.
type orderStep struct {
	Step   string    `json:"step"`
	Detail string    `json:"detail"`
	At     time.Time `json:"created_at"`
}

// orderAction is the input of a step of an order.
type orderAction struct{ Order, Step, Detail string }

func (a orderAction) journalKey() string { return "OrderWorkflow/" + a.Order + "/" + a.Step }

// newOrderStep defines a step that writes a row and returns the content of that row.
func newOrderStep(name string, pool *pgxpool.Pool) *perdure.Activity[orderAction, string] {
	return newStep(name, pool, func(ctx context.Context, tx pgx.Tx, a orderAction) (string, error) {
		_, err := tx.Exec(ctx, `insert into cluster_tests.order_step (order_id, step, detail, at) values ($1, $2, $3, clock_timestamp())`, a.Order, a.Step, a.Detail)
		return a.Detail, err
	})
}

// inventory and payments are groups of activities that several workflows could use.
type inventory struct {
	Reserve, Confirm *perdure.Activity[orderAction, string]
}

type payments struct {
	Charge *perdure.Activity[orderAction, string]
}

// orders has a workflow that uses both groups and a step of its own.
type orders struct {
	inventory inventory
	payments  payments
	summarize *perdure.Activity[orderAction, string]
	process   *perdure.Workflow[order, orderResult]
	service   *perdure.Service
	steps     *perdure.RPC[perdure.Void, []orderStep]
}

func newOrders(pool *pgxpool.Pool) *orders {
	s := &orders{
		inventory: inventory{Reserve: newOrderStep("inventory-reserve", pool), Confirm: newOrderStep("inventory-confirm", pool)},
		payments:  payments{Charge: newOrderStep("payments-charge", pool)},
		summarize: newOrderStep("summarize", pool),
		service:   perdure.NewService("ActivityGroupTest", perdure.MaxIdle(idle), perdure.Concurrency(0)),
	}

	s.process = perdure.NewWorkflow("OrderWorkflow", s.run)
	s.steps = perdure.NewRPC(s.service, "get_order_steps", func(c perdure.EntityCtx, _ perdure.Void) ([]orderStep, error) {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		rows, err := pool.Query(ctx, `select step, detail, at at time zone 'UTC' from cluster_tests.order_step where order_id = $1 order by at, n`, c.Key())
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowToStructByPos[orderStep])
	})

	return s
}

func (s *orders) run(ctx perdure.WorkflowCtx, o order) (out orderResult, err error) {
	out.OrderID = o.ID
	if out.Reservation, err = s.inventory.Reserve.Run(ctx, orderAction{o.ID, "reserve", fmt.Sprintf("res-%s-%d", o.ID, o.Items)}); err != nil {
		return out, err
	}
	if out.Transaction, err = s.payments.Charge.Run(ctx, orderAction{o.ID, "charge", fmt.Sprintf("tx-%s-%d", o.ID, o.Amount)}); err != nil {
		return out, err
	}
	if out.Confirmation, err = s.inventory.Confirm.Run(ctx, orderAction{o.ID, "confirm", "confirmed-" + out.Reservation}); err != nil {
		return out, err
	}
	summary := fmt.Sprintf("order=%s,res=%s,tx=%s", o.ID, out.Reservation, out.Transaction)
	out.Summary, err = s.summarize.Run(ctx, orderAction{o.ID, "summary", summary})
	return out, err
}

func (s *orders) definitions() perdure.Group {
	return perdure.Group{perdure.GroupOf(&s.inventory), perdure.GroupOf(&s.payments), s.summarize, s.process, s.service}
}

func (s *orders) routes(n *node, mux *http.ServeMux) {
	mux.Handle("POST /activity-group/{id}/process-order", answer(func(r *http.Request) (orderResult, error) {
		o, err := body[order](r)
		if err != nil {
			return orderResult{}, err
		}
		o.ID = r.PathValue("id")
		return execute(n, r, start[order, orderResult]{s.process, perdure.RawKey(o.ID), o})
	}))
	mux.Handle("GET /activity-group/{id}/order-steps", answer(func(r *http.Request) ([]orderStep, error) {
		return query(r, func() ([]orderStep, error) {
			return s.steps.Call(n.app.With(r.Context()), r.PathValue("id"), perdure.Void{})
		})
	}))
}
