package sqlite

import (
	"context"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sqlNameWorker   = `insert into perdure_remote_workers (name, home) values (?1, ?2) on conflict (name) do nothing`
	sqlForgetWorker = `delete from perdure_remote_workers where name = ?1`
	sqlDropHome     = `delete from perdure_remote_workers where home = ?1`
	sqlWorkerHomes  = `select distinct home from perdure_remote_workers order by home`
)

// NameWorkers stores and removes names of remote workers.
func (s *Store) NameWorkers(ctx context.Context, n store.WorkerNames) error {
	const op = "name workers"
	if err := n.Check(op); err != nil {
		return err
	}
	return s.write(ctx, op, func(w *writer) error {
		for i := range n.Add {
			if _, err := w.exec(sqlNameWorker, n.Add[i].Name, n.Add[i].Home[:]); err != nil {
				return err
			}
		}
		for _, name := range n.Remove {
			if _, err := w.exec(sqlForgetWorker, name); err != nil {
				return err
			}
		}
		for _, home := range n.Drop {
			if _, err := w.exec(sqlDropHome, home[:]); err != nil {
				return err
			}
		}
		return nil
	})
}

// WorkerHomes returns the homes of all remote workers. For a home that cannot be read, it returns
// an id that no live process has.
func (s *Store) WorkerHomes(ctx context.Context) (homes []model.NodeID, err error) {
	err = s.read(ctx, "worker homes", func(c *conn) error {
		homes = nil
		return c.query(sqlWorkerHomes, func(q *stmt) error {
			var home model.NodeID
			copy(home[:], q.raw(0))
			homes = append(homes, home)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return homes, nil
}
