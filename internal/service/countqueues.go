package service

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	// maxCounted bounds how many open executions a count of queues visits.
	maxCounted = 100_000
	// maxHistories bounds how many histories a count of queues reads.
	maxHistories = 2000
)

// AskQueuesFunc asks a node for the tasks of its runs, by queue.
type AskQueuesFunc func(ctx context.Context, node model.NodeID) ([]peer.QueueCount, error)

// AskQueuesBy sets how the service asks other nodes about queues; see AskBy.
func (s *Service) AskQueuesBy(ask AskQueuesFunc) { s.askQueues = ask }

// census collects queues by name.
type census struct {
	tenant string
	judge  *judge
	list   api.QueueList
}

// at returns the entry of a queue, and creates it if necessary.
func (c *census) at(name string) *api.QueueInfo {
	i := slices.IndexFunc(c.list.Queues, func(q api.QueueInfo) bool { return q.Name == name })
	if i < 0 {
		i = len(c.list.Queues)
		c.list.Queues = append(c.list.Queues, api.QueueInfo{Name: name})
	}
	return &c.list.Queues[i]
}

// ListQueues returns the queues of a tenant.
func (s *Service) ListQueues(ctx context.Context, tenant string) (api.QueueList, error) {
	if err := s.checkTenant("list queues", tenant); err != nil {
		return api.QueueList{}, err
	}
	j, err := s.judge(ctx, tenant)
	if err != nil {
		return api.QueueList{}, err
	}
	c := &census{tenant: tenant, judge: j}
	if counts, ok := j.askQueues(ctx); ok {
		c.list.Counted = true
		c.add(counts)
	} else if err := c.look(ctx); err != nil {
		return c.list, err
	}

	workers, err := s.ListWorkers(ctx, tenant)
	if err != nil {
		return c.list, err
	}
	for i := range workers {
		for _, name := range workers[i].Queues {
			q := c.at(name)
			q.Workers += 1 + workers[i].Alike
			q.Slots += workers[i].Slots
		}
	}
	slices.SortFunc(c.list.Queues, func(a, b api.QueueInfo) int { return strings.Compare(a.Name, b.Name) })
	return c.list, nil
}

// askQueues asks every node that owns shards. ok is true if all shards have a live owner and all
// owners have answered.
func (j *judge) askQueues(ctx context.Context) (counts []peer.QueueCount, ok bool) {
	s := j.service
	own := model.NodeID{}
	if s.engine != nil {
		own, _, _ = s.engine.Self()
	}
	owners := map[model.NodeID]bool{}
	for shard := range s.store.Info().Shards {
		m := j.world.Owner(model.ShardID(shard))
		if m == nil {
			return nil, false
		}
		owners[m.ID] = true
	}

	ctx, cancel := context.WithTimeout(ctx, askWithin(ctx))
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	answered := 0
	add := func(more []peer.QueueCount) {
		mu.Lock()
		defer mu.Unlock()
		counts, answered = append(counts, more...), answered+1
	}
	for node := range owners {
		switch {
		case s.engine != nil && node == own:
			if more, sure := s.engine.QueueCounts(); sure {
				add(more)
			}
		case s.askQueues != nil && s.store.Info().Shared:
			wg.Go(func() {
				// Without the answer of the node, the census reads the store.
				if more, err := s.askQueues(ctx, node); err == nil {
					add(more)
				}
			})
		}
	}
	wg.Wait()
	return counts, answered == len(owners)
}

// add adds up the counts of the nodes.
func (c *census) add(counts []peer.QueueCount) {
	for i := range counts {
		n := &counts[i]
		if n.Tenant != c.tenant {
			continue
		}
		q := c.at(n.Queue)
		q.Waiting, q.Delayed, q.Claimed = q.Waiting+n.Waiting, q.Delayed+n.Delayed, q.Claimed+n.Claimed
		q.Open += n.Waiting + n.Delayed + n.Claimed
		q.Paused = q.Paused || n.Paused
		since(q, n.Oldest)
		for _, kind := range n.Abandoned {
			c.noteUnserved(q, kind)
		}
	}
}

// look counts the open tasks in the store: standalone tasks, and tasks of workflows, which it finds
// in their histories.
func (c *census) look(ctx context.Context) error {
	s := c.judge.service
	q := store.Query{Tenant: c.tenant, Statuses: []model.Status{model.Running}, Limit: maxPage}
	for n, read := 0, 0; ; {
		page, err := s.store.List(ctx, q)
		if err != nil {
			return err
		}

		for i := range page.Executions {
			row := &page.Executions[i]
			if row.Parked && row.Start.Task == nil {
				continue // a run with open tasks is not parked
			}

			if read++; read > maxHistories {
				c.count(row, nil)
				continue
			}

			open, err := c.judge.openTasks(ctx, row)
			switch {
			case fault.Is(err, fault.NotFound): // deleted since it was listed
			case fault.Is(err, fault.Corrupt):
				c.count(row, nil)
			case err != nil:
				return err
			default:
				c.count(row, open)
			}
		}

		if n += len(page.Executions); !page.More {
			return nil
		}
		if n > maxCounted {
			return fault.New(fault.Exhausted, "more than %d executions are open: ask a node that carries the queues", maxCounted)
		}
		last := &page.Executions[len(page.Executions)-1].Start
		q.After = store.PageMark{Started: last.At, Run: last.Run}
	}
}

// count counts the open tasks of a run. A standalone task without a history is counted as open,
// because nothing else is known about it.
func (c *census) count(row *store.Execution, open []*core.Task) {
	if len(open) == 0 && row.Start.Task != nil {
		q := c.at(row.Start.Task.Queue)
		q.Open++
		since(q, row.Start.At)
		c.noteUnserved(q, row.Start.Task.Kind)
		return
	}

	for _, t := range open {
		q := c.at(t.Spec.Queue)
		q.Open++
		switch {
		case t.Held:
			q.Claimed++
		case t.Visible > c.judge.world.Now():
			q.Delayed++
		default:
			q.Waiting++
			since(q, t.Visible)
			c.noteUnserved(q, t.Spec.Kind)
		}
	}
}

// noteUnserved notes an activity that no live process executes.
func (c *census) noteUnserved(q *api.QueueInfo, kind string) {
	if _, ok := c.judge.world.WhyUnserved(c.tenant, &model.TaskSpec{Queue: q.Name, Kind: kind}); !ok {
		return
	}
	if i, found := slices.BinarySearch(q.Unserved, kind); !found {
		q.Unserved = slices.Insert(q.Unserved, i, kind)
	}
}

// since updates the time from which the oldest waiting task of a queue has waited.
func since(q *api.QueueInfo, at model.Time) {
	if at != 0 && (q.Oldest == 0 || at < q.Oldest) {
		q.Oldest = at
	}
}
