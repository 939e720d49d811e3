package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
)

// account is a row of the table of accounts.
type account struct {
	ID        string `json:"account_id"`
	Transfers int64  `json:"transfer_count"`
	Total     int64  `json:"total_transferred"`
}

// transfer moves an amount from one account to another.
type transfer struct {
	From   string `json:"from"`
	To     string `json:"to_entity"`
	Amount int64  `json:"amount"`
}

func (t transfer) journalKey() string {
	return fmt.Sprintf("transfer/%s/%s/%d", t.From, t.To, t.Amount)
}

// count asks how many transfers an account has made.
type count struct{ Account, Query string }

func (c count) journalKey() string { return "count/" + c.Account + "/" + c.Query }

// accounts has workflows whose steps write several rows in one transaction: all of them, or none.
type accounts struct {
	move, fail *perdure.Activity[transfer, int64]
	countRows  *perdure.Activity[count, int64]
	transfer   *perdure.Workflow[transfer, int64]
	failing    *perdure.Workflow[transfer, int64]
	count      *perdure.Workflow[count, int64]
	service    *perdure.Service
	state      *perdure.RPC[perdure.Void, account]
}

func newAccounts(pool *pgxpool.Pool) *accounts {
	s := &accounts{service: perdure.NewService("SqlActivityTest", perdure.MaxIdle(idle), perdure.Concurrency(0))}
	s.move = newStep("move", pool, move)
	s.fail = newStep("move-and-fail", pool, func(ctx context.Context, tx pgx.Tx, t transfer) (int64, error) {
		if n, err := move(ctx, tx, t); err != nil {
			return n, err
		}
		return 0, perdure.Permanent(errors.New("intentional failure after the writes: they are rolled back"))
	})
	s.countRows = newStep("count-transfers", pool, func(ctx context.Context, tx pgx.Tx, c count) (n int64, err error) {
		err = tx.QueryRow(ctx, `select count(*) from cluster_tests.transfer where account = $1`, c.Account).Scan(&n)
		return n, err
	})

	s.transfer = perdure.NewWorkflow("SqlTransferWorkflow", func(ctx perdure.WorkflowCtx, t transfer) (int64, error) { return s.move.Run(ctx, t) })
	s.failing = perdure.NewWorkflow("SqlFailingTransferWorkflow", func(ctx perdure.WorkflowCtx, t transfer) (int64, error) { return s.fail.Run(ctx, t) })
	s.count = perdure.NewWorkflow("SqlCountWorkflow", func(ctx perdure.WorkflowCtx, c count) (int64, error) { return s.countRows.Run(ctx, c) })

	s.state = perdure.NewRPC(s.service, "get_state", func(c perdure.EntityCtx, _ perdure.Void) (account, error) {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		a := account{ID: c.Key()}
		err := pool.QueryRow(ctx, `select transfers, total from cluster_tests.account where id = $1`, c.Key()).Scan(&a.Transfers, &a.Total)
		_, err = exists(err)
		return a, err
	})
	return s
}

// move counts a transfer of an account and records it. It returns how many transfers the account
// has made so far.
func move(ctx context.Context, tx pgx.Tx, t transfer) (n int64, err error) {
	err = tx.QueryRow(ctx, `insert into cluster_tests.account as a (id, transfers, total) values ($1, 1, $2)
		on conflict (id) do update set transfers = a.transfers + 1, total = a.total + excluded.total returning transfers`, t.From, t.Amount).Scan(&n)
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, `insert into cluster_tests.transfer (account, recipient, amount) values ($1, $2, $3)`, t.From, t.To, t.Amount)
	return n, err
}

func (s *accounts) definitions() perdure.Group {
	return perdure.Group{s.move, s.fail, s.countRows, s.transfer, s.failing, s.count, s.service}
}

func (s *accounts) routes(n *node, mux *http.ServeMux) {
	for path, w := range map[string]*perdure.Workflow[transfer, int64]{"transfer": s.transfer, "failing-transfer": s.failing} {
		mux.Handle("POST /sql-activity/{id}/"+path, answer(func(r *http.Request) (int64, error) {
			t, err := body[transfer](r)
			if err == nil && t.To == "" {
				err = errors.New("the body needs a to_entity")
			}
			if err != nil {
				return 0, err
			}
			// A repetition of the same transfer attaches to the existing execution and does not
			// move the money twice.
			t.From = r.PathValue("id")
			return execute(n, r, start[transfer, int64]{w, perdure.HashKey([]any{path, t}), t})
		}))
	}

	mux.Handle("GET /sql-activity/{id}/sql-count", answer(func(r *http.Request) (int64, error) {
		c := count{Account: r.PathValue("id"), Query: uuid.NewString()}
		return execute(n, r, start[count, int64]{s.count, perdure.RawKey(c.Account + "/count/" + c.Query), c})
	}))
	mux.Handle("GET /sql-activity/{id}/state", answer(func(r *http.Request) (account, error) {
		return query(r, func() (account, error) {
			return s.state.Call(n.app.With(r.Context()), r.PathValue("id"), perdure.Void{})
		})
	}))
}
