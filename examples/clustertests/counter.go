package main

import (
	"net/http"
	"time"

	"github.com/perdure/perdure"
)

// idle is how long an entity without calls stays in memory.
const idle = 5 * time.Second

// counters is an entity whose state is a number. Operations of one counter never overlap, even if
// they arrive at different nodes.
type counters struct {
	entity *perdure.Entity[int64]
	add    *perdure.Operation[int64, int64]
	reset  *perdure.Operation[perdure.Void, perdure.Void]
}

func newCounters() *counters {
	e := perdure.NewEntity[int64]("Counter", perdure.MaxIdle(idle))
	return &counters{
		entity: e,
		add: perdure.NewOperation(e, "add", func(_ perdure.EntityCtx, value *int64, n int64) (int64, error) {
			*value += n
			return *value, nil
		}),
		reset: perdure.NewOperation(e, "reset", func(_ perdure.EntityCtx, value *int64, _ perdure.Void) (perdure.Void, error) {
			*value = 0
			return perdure.Void{}, nil
		}),
	}
}

func (c *counters) definitions() perdure.Group { return perdure.Group{c.entity} }

func (c *counters) routes(n *node, mux *http.ServeMux) {
	mux.Handle("GET /counter/{id}", answer(func(r *http.Request) (int64, error) {
		return query(r, func() (int64, error) {
			value, _, err := c.entity.Get(n.app.With(r.Context()), r.PathValue("id"))
			return value, err
		})
	}))

	change := func(tag string, sign int64) http.Handler {
		return answer(func(r *http.Request) (int64, error) {
			amount, err := number(r)
			if err != nil {
				return 0, err
			}
			id := r.PathValue("id")
			return persisted(n, r, target{"Counter", id, tag}, func(cl perdure.Client, rid perdure.CallOption) (int64, error) {
				return c.add.Call(cl, id, sign*amount, rid)
			})
		})
	}
	mux.Handle("POST /counter/{id}/increment", change("increment", 1))
	mux.Handle("POST /counter/{id}/decrement", change("decrement", -1))

	mux.Handle("POST /counter/{id}/reset", answer(func(r *http.Request) (unit, error) {
		id := r.PathValue("id")
		_, err := persisted(n, r, target{"Counter", id, "reset"}, func(cl perdure.Client, rid perdure.CallOption) (perdure.Void, error) {
			return c.reset.Call(cl, id, perdure.Void{}, rid)
		})
		return unit{}, err
	}))
}
