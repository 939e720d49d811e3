package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// What a workflow that another process owns may cost, compared with one of the own process.
const (
	linkedMore     = 0.5 // at most this many milliseconds more with a connection
	unlinkedFactor = 2.5 // at most this many times as long without a connection
)

// nearAndFar asks for workflows of three steps that one client runs in turns: one that the process
// of the client owns, and one that the other process owns.
type nearAndFar struct {
	Own            []bool // says of each shard whether the process owns it
	Warm, Duration time.Duration
}

// distances are the times of both kinds of workflows.
type distances struct {
	Near, Far []time.Duration
}

// distance measures two processes with one client in the first of them.
func (b *bench) distance(ctx context.Context) error {
	for _, link := range b.links {
		d, err := b.distanceOf(ctx, link)
		if err != nil {
			return err
		}
		near, far := quantile(d.Near, 0.5), quantile(d.Far, 0.5)
		fmt.Printf("links %s: own shards p50 %s, p99 %s; shards of the other process p50 %s, p99 %s\n", link,
			milliseconds(near), milliseconds(quantile(d.Near, 0.99)), milliseconds(far), milliseconds(quantile(d.Far, 0.99)))

		if link == "on" {
			b.verdict.atMost("distance: p50 beyond that of own shards, links on", linkedMore, " ms", toMillis(far-near))
		} else {
			b.verdict.atMost("distance: p50 against that of own shards, links off", unlinkedFactor, "×", far.Seconds()/near.Seconds())
		}
	}
	return nil
}

// distanceOf measures two processes with or without a connection between them.
func (b *bench) distanceOf(ctx context.Context, link string) (d distances, err error) {
	s := b.settings()
	s.NoLink = link == "off"
	c, err := openCluster(ctx, s, 2)
	if err != nil {
		return d, err
	}
	defer c.close()

	own, err := c.ownedBy(ctx, c.processes[0])
	if err != nil {
		return d, err
	}
	d, err = ask[distances](c.processes[0], "distance", nearAndFar{Own: own, Warm: b.warmUp(), Duration: b.duration})
	if err != nil {
		return d, err
	}

	after, err := c.ownedBy(ctx, c.processes[0])
	switch {
	case err != nil:
		return d, err
	case !slices.Equal(own, after):
		return d, errors.New("shards have moved during the measurement")
	case len(d.Near) == 0 || len(d.Far) == 0:
		return d, errors.New("no workflow has ended")
	}
	return d, nil
}

// distance executes the order "distance" of the parent process. Both kinds of workflows take turns,
// so that a busy machine affects them in the same way.
func (c *child) distance(in nearAndFar) (d distances, err error) {
	shards := map[bool][]model.ShardID{}
	for i, own := range in.Own {
		shards[own] = append(shards[own], model.ShardID(i))
	}
	if len(shards[true]) == 0 || len(shards[false]) == 0 {
		return d, errors.New("one process owns all shards")
	}

	from := time.Now().Add(in.Warm)
	for end := from.Add(in.Duration); time.Now().Before(end); {
		near, err := c.timeThree(shards[true], len(in.Own))
		if err != nil {
			return d, err
		}
		far, err := c.timeThree(shards[false], len(in.Own))
		if err != nil {
			return d, err
		}
		if time.Now().After(from) {
			d.Near, d.Far = append(d.Near, near), append(d.Far, far)
		}
	}
	return d, nil
}

// timeThree runs a workflow of three steps in one of the given shards, and returns how long it
// takes.
func (c *child) timeThree(in []model.ShardID, shards int) (time.Duration, error) {
	key := keyIn(fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano()), in, shards)
	begun := time.Now()
	err := c.runThree(key)
	return time.Since(begun), err
}

// keyIn returns a key that starts with name and belongs to one of the given shards.
func keyIn(name string, in []model.ShardID, shards int) string {
	for n := 0; ; n++ {
		key := fmt.Sprintf("%s-%d", name, n)
		if slices.Contains(in, shardOf(key, shards)) {
			return key
		}
	}
}
