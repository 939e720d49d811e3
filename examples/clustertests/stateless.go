package main

import (
	"context"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
)

// bump is a request to change a counter. A persisted RPC runs at least once, and so perhaps twice.
// For that reason the request has an id, and a table remembers the answer for each id.
type bump struct {
	ID    string
	Add   int64
	Reset bool
}

// stateless is a service that keeps its counters in its own table.
type stateless struct {
	service *perdure.Service
	get     *perdure.RPC[perdure.Void, int64]
	change  *perdure.RPC[bump, int64]
}

func newStateless(pool *pgxpool.Pool) *stateless {
	s := &stateless{service: perdure.NewService("StatelessCounter", perdure.MaxIdle(idle))}
	s.get = perdure.NewRPC(s.service, "get", func(c perdure.EntityCtx, _ perdure.Void) (value int64, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		err = pool.QueryRow(ctx, `select value from cluster_tests.stateless_counter where id = $1`, c.Key()).Scan(&value)
		_, err = exists(err)
		return value, err
	})

	s.change = perdure.NewRPC(s.service, "change", func(c perdure.EntityCtx, b bump) (value int64, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			value, err = applyBump(ctx, tx, c.Key(), b)
			return err
		})
		return value, err
	}, perdure.Persisted())

	return s
}

// applyBump changes a counter once per request.
func applyBump(ctx context.Context, tx pgx.Tx, id string, b bump) (value int64, err error) {
	err = tx.QueryRow(ctx, `select value from cluster_tests.stateless_request where id = $1`, b.ID).Scan(&value)
	if done, err := exists(err); done || err != nil {
		return value, err
	}

	err = tx.QueryRow(ctx, `insert into cluster_tests.stateless_counter as c (id, value) values ($1, $2)
		on conflict (id) do update set value = case when $3 then 0 else c.value + $2 end returning value`, id, b.Add, b.Reset).Scan(&value)
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, `insert into cluster_tests.stateless_request (id, value) values ($1, $2)`, b.ID, value)
	return value, err
}

func (s *stateless) definitions() perdure.Group { return perdure.Group{s.service} }

func (s *stateless) routes(n *node, mux *http.ServeMux) {
	mux.Handle("GET /stateless-counter/{id}", answer(func(r *http.Request) (int64, error) {
		return query(r, func() (int64, error) { return s.get.Call(n.app.With(r.Context()), r.PathValue("id"), perdure.Void{}) })
	}))
	call := func(r *http.Request, tag string, b bump) (int64, error) {
		id := r.PathValue("id")
		if b.ID = uuid.NewString(); r.Header.Get("Idempotency-Key") != "" {
			b.ID = id + "/" + tag + "/" + r.Header.Get("Idempotency-Key")
		}
		return persisted(n, r, target{"StatelessCounter", id, tag}, func(c perdure.Client, rid perdure.CallOption) (int64, error) {
			return s.change.Call(c, id, b, rid)
		})
	}

	for tag, sign := range map[string]int64{"increment": 1, "decrement": -1} {
		mux.Handle("POST /stateless-counter/{id}/"+tag, answer(func(r *http.Request) (int64, error) {
			amount, err := number(r)
			if err != nil {
				return 0, err
			}
			return call(r, tag, bump{Add: sign * amount})
		}))
	}
	mux.Handle("POST /stateless-counter/{id}/reset", answer(func(r *http.Request) (unit, error) {
		_, err := call(r, "reset", bump{Reset: true})
		return unit{}, err
	}))
}
