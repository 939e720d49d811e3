package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// cluster is a set of processes that share a schema.
type cluster struct {
	settings  settings
	processes []*process
	reader    *node.Node // reads the map of the shards
}

// balanceTime bounds how long processes may take to distribute the shards. Until the lease of a
// dead process ends, its shards may be without an owner.
const balanceTime = time.Minute

// renewal is how long it takes at most until a process knows the owners of all shards. The process
// reads them whenever it renews its lease, every 2 s.
const renewal = 3 * time.Second

// openCluster starts n processes, and waits until each of them owns its share of the shards.
func openCluster(ctx context.Context, s settings, n int) (c *cluster, err error) {
	c = &cluster{settings: s}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	for range n {
		p, err := c.start()
		if err != nil {
			return c, err
		}
		c.processes = append(c.processes, p)
	}

	c.reader, err = node.Open(ctx, node.Config{URL: s.URL, Schema: s.Schema, ReadOnly: true})
	if err != nil {
		return c, err
	}
	if err := c.awaitBalance(ctx); err != nil {
		return c, err
	}
	time.Sleep(renewal)
	return c, nil
}

// start starts one more process, and waits until it is ready.
func (c *cluster) start() (*process, error) {
	p, err := launch(c.settings)
	if err != nil {
		return nil, err
	}
	if err := p.awaitReady(); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// close kills the processes that still run.
func (c *cluster) close() {
	for _, p := range c.processes {
		p.kill()
	}
	if c.reader != nil {
		_ = c.reader.Close() // it only reads
	}
}

// awaitBalance waits until all processes are members of the cluster, and each shard has the owner
// that it should have.
func (c *cluster) awaitBalance(ctx context.Context) error {
	for end := time.Now().Add(balanceTime); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		balanced, err := c.isBalanced(ctx)
		if err != nil || balanced {
			return err
		}
	}
	return fmt.Errorf("the shards have not settled within %s", balanceTime)
}

// isBalanced reports whether every process owns shards and no shard is about to move. The second
// condition is not enough: a process that has just joined is not yet part of the plan.
func (c *cluster) isBalanced(ctx context.Context) (bool, error) {
	admin := c.reader.Admin(model.DefaultTenant)
	nodes, err := admin.Nodes(ctx)
	idle := func(n api.NodeInfo) bool { return n.Shards == 0 }
	if err != nil || len(nodes) != len(c.processes) || slices.ContainsFunc(nodes, idle) {
		return false, err
	}
	shards, err := admin.Shards(ctx)
	if err != nil {
		return false, err
	}
	for i := range shards {
		if shards[i].Owner == (model.NodeID{}) || shards[i].Owner != shards[i].Target {
			return false, nil
		}
	}
	return true, nil
}

// ownedBy says of each shard whether a process owns it.
func (c *cluster) ownedBy(ctx context.Context, p *process) (owned []bool, err error) {
	view, err := c.reader.Store().Members(ctx)
	if err != nil {
		return nil, err
	}
	var id model.NodeID
	for i := range view.Members {
		if view.Members[i].PID == p.cmd.Process.Pid {
			id = view.Members[i].ID
		}
	}
	if id == (model.NodeID{}) {
		return nil, errors.New("the process is not a member of the cluster")
	}
	for _, o := range view.Owners {
		owned = append(owned, o.Node == id)
	}
	return owned, nil
}

// shardOf returns the shard of an execution of the workflow three, in a store without shard groups.
func shardOf(key string, shards int) model.ShardID {
	return model.NewLayout(shards, nil).Shard(model.Address{Tenant: model.DefaultTenant, Type: threeName, Key: key})
}
