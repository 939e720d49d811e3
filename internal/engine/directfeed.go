package engine

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/engine/feed"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/peerlink"
)

// The feed of a node gets the changes of other nodes over the connections. Package feed decides
// what to ask for and what to send. A node asks with a request, and the other node answers it when
// it has changes. So each side has one request per other node in flight while a caller watches, and
// nothing otherwise.

// Times of the requests for changes.
const (
	// feedPause follows each answer, so that the next one has several changes.
	feedPause = 5 * time.Millisecond
	// feedRetry is the pause after the first failed attempt. The pause doubles with each further
	// attempt that fails, up to feedLongRetry.
	feedRetry     = 50 * time.Millisecond
	feedLongRetry = time.Second
	// feedFull is the pause after the other node has said that it has no room.
	feedFull = 10 * time.Second
	// feedEnd is how long a node tries to end its subscription at another node. If that fails, the
	// other node ends the subscription later.
	feedEnd = time.Second
)

// errOldBuild means that the other node runs a build that does not send changes.
var errOldBuild = errors.New("the node runs an older version")

// setFeedPeers tells the feed which nodes can be asked for changes.
func (inc *incarnation) setFeedPeers(peers []peerlink.Peer) {
	var nodes []model.NodeID
	for i := range peers {
		if p := &peers[i]; p.Node != inc.self.ID && p.Address != "" {
			nodes = append(nodes, p.Node)
		}
	}
	inc.eng.feed.SetPeers(nodes)
}

// followNodes gets the changes of other nodes while a caller watches, until ctx ends.
func (inc *incarnation) followNodes(ctx context.Context) {
	followed := map[*feed.Inlet]bool{}
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		inlets, again, changed := inc.eng.feed.Following()
		now := make(map[*feed.Inlet]bool, len(inlets))
		for _, in := range inlets {
			now[in] = true
			if !followed[in] {
				followed[in] = true
				wg.Go(func() { inc.followNode(ctx, in) })
			}
		}
		// The goroutine of a node that is gone ends by itself.
		maps.DeleteFunc(followed, func(in *feed.Inlet, _ bool) bool { return again > 0 && !now[in] })

		timer.Stop()
		if again > 0 {
			timer.Reset(again)
		}
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// followNode gets the changes of one node until the node is gone or ctx ends.
func (inc *incarnation) followNode(ctx context.Context, in *feed.Inlet) {
	pause := feedRetry
	for ctx.Err() == nil {
		asking, interrupt := context.WithCancel(ctx)
		d, idle, ok := in.Next(interrupt)
		switch {
		case !ok:
			interrupt()
			return
		case idle != nil:
			interrupt()
			pause = feedRetry
			select {
			case <-idle:
			case <-ctx.Done():
			}
			continue
		case d.End:
			brief, cancel := context.WithTimeout(asking, feedEnd)
			_, _ = inc.demand(brief, in.Node(), &d) // after an error, the other node ends it later
			cancel()
			interrupt()
			continue
		}

		p, err := inc.demand(asking, in.Node(), &d)
		interrupted := asking.Err() != nil
		interrupt()
		if err == nil {
			err = in.Take(p)
		} else if interrupted && !errors.Is(err, peerlink.ErrLost) && !errors.Is(err, peerlink.ErrUnsent) {
			continue // a newer demand replaces this one
		}
		if err == nil {
			pause = feedRetry
			sleep(ctx, feedPause)
			continue
		}
		if errors.Is(err, errOldBuild) {
			inc.eng.cfg.Log.Info("another node runs an older version and sends no changes, so watches on this node lack its changes", "node", in.Node().String())
			in.Refuse()
			return
		}

		in.Lose()
		inc.eng.cfg.Log.Debug("cannot get the changes of another node; this node tries again", "node", in.Node().String(), "error", err)
		if fault.Is(err, fault.Exhausted) {
			pause = feedFull
		}
		sleep(ctx, pause)
		pause = min(2*pause, feedLongRetry)
	}
}

// demand asks another node for a portion of its changes.
func (inc *incarnation) demand(ctx context.Context, node model.NodeID, d *feed.Demand) (*feed.Portion, error) {
	body, _, err := inc.links.Call(ctx, node, mustEncode(&ask{Kind: askFeed, Feed: d}))
	if err != nil {
		return nil, err
	}
	t, err := decodeTold(body)
	switch {
	case err != nil:
		return nil, err
	case t.Err != nil:
		return nil, t.Err.err()
	case t.Changes == nil:
		return nil, errOldBuild
	}
	return t.Changes, nil
}

// serveFeed answers a demand of another node when there are changes. It does not block.
func (h *linkHandler) serveFeed(r *peerlink.Request, d *feed.Demand) {
	hub := h.inc.eng.feed
	if d.End {
		hub.Unsubscribe(r.From, d.Subscription)
		reply(r, &told{Changes: &feed.Portion{}})
		return
	}

	// The connection calls cut when it sends the answer, so the answer has everything that has
	// happened until then.
	cut := func(dst []byte) []byte {
		p, err := hub.Cut(r.From, d.Subscription, d.After)
		if err != nil {
			return append(dst, mustEncode(refuseFeed(err))...)
		}
		return append(dst, mustEncode(&told{Changes: &p})...)
	}
	withdraw, err := hub.Subscribe(r.From, d, func() { r.Reply(feed.PortionBytes, cut) })
	if err != nil {
		reply(r, refuseFeed(err))
		return
	}
	r.OnCancel(withdraw)
}

// refuseFeed returns the answer to a demand that cannot be served.
func refuseFeed(err error) *told {
	return &told{Err: &toldError{Kind: fault.KindOf(err).String(), Text: err.Error()}}
}
