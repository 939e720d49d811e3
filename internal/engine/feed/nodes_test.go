package feed_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine/feed"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// The shards of the tests: the key of an address begins with the digit of its shard.
const testShards = 4

func shards(all ...model.ShardID) []model.ShardID { return all }

// nodeOf returns the id of a node.
func nodeOf(id byte) model.NodeID { return model.NodeID{15: id} }

// pairOf is two hubs in a cluster. The reader follows the owner.
type pairOf struct {
	t             *testing.T
	reader, owner *desk
	in            *feed.Inlet
	waits         bool // a demand waits at the owner
	ready         bool // the owner has an answer to the demand
	demand        feed.Demand
	withdraw      func()
}

func newDeskOfMany(t *testing.T, change ...func(*feed.Config)) *desk {
	t.Helper()
	d := newDesk(t, append(change, func(c *feed.Config) {
		c.Shards = testShards
		c.Shard = func(a model.Address) model.ShardID { return model.ShardID(a.Key[0] - '0') }
	})...)
	d.Release(shards(0))
	return d
}

// newPair opens two hubs. The reader owns shards 0 and 1, the owner 2 and 3.
func newPair(t *testing.T, change ...func(*feed.Config)) *pairOf {
	t.Helper()
	p := &pairOf{t: t, reader: newDeskOfMany(t), owner: newDeskOfMany(t, change...)}
	p.reader.Claim(shards(0, 1))
	p.owner.Claim(shards(2, 3))
	p.reader.SetPeers([]model.NodeID{nodeOf(2)})
	p.owner.SetPeers([]model.NodeID{nodeOf(1)})
	return p
}

// inlet returns the inlet of the reader.
func (p *pairOf) inlet() *feed.Inlet {
	p.t.Helper()
	if p.in == nil {
		all, _, _ := p.reader.Following()
		if len(all) != 1 || all[0].Node() != nodeOf(2) {
			p.t.Fatalf("the reader follows %v", all)
		}
		p.in = all[0]
	}
	return p.in
}

// ask sends the next demand of the reader to the owner.
func (p *pairOf) ask() {
	p.t.Helper()
	d, idle, ok := p.inlet().Next(func() {
		p.waits = false
		p.withdraw()
	})
	if idle != nil || !ok {
		p.t.Fatalf("the reader asks for nothing: %t", ok)
	}
	p.demand, p.waits, p.ready = d, true, false
	withdraw, err := p.owner.Subscribe(nodeOf(1), &d, func() { p.ready = true })
	if err != nil {
		p.t.Fatal(err)
	}
	p.withdraw = withdraw
}

// answer gives the reader the answer of the owner. The owner must have one.
func (p *pairOf) answer() feed.Portion {
	p.t.Helper()
	if !p.waits || !p.ready {
		p.t.Fatalf("the owner has no answer: waits %t, ready %t", p.waits, p.ready)
	}
	portion := p.cut()
	if err := p.in.Take(&portion); err != nil {
		p.t.Fatal(err)
	}
	p.waits = false
	return portion
}

func (p *pairOf) cut() feed.Portion {
	p.t.Helper()
	portion, err := p.owner.Cut(nodeOf(1), p.demand.Subscription, p.demand.After)
	if err != nil {
		p.t.Fatal(err)
	}
	return portion
}

// pull asks, and takes answers until there is none.
func (p *pairOf) pull() {
	p.t.Helper()
	if !p.waits {
		p.ask()
	}
	for p.ready {
		p.answer()
		p.ask()
	}
}

// watching is a pair whose reader watches tenant a and gets everything.
func watching(t *testing.T, change ...func(*feed.Config)) (*pairOf, *feed.Watcher) {
	t.Helper()
	p := newPair(t, change...)
	w := p.reader.watch("a", "")
	p.pull()
	p.reader.want(w, "")
	return p, w
}

// A watcher gets the changes of the other node in order. Its first page is not a gap notice, since
// it waits until the other node sends its changes.
func TestChangesOfAnotherNode(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	w := p.reader.watch("a", "")
	early := p.reader.watch("a", "")
	p.reader.want(early, "partial")
	if p.owner.On() {
		t.Error("changes are wanted before another node has asked for them")
	}
	p.ask()
	if !p.owner.On() {
		t.Error("no changes are wanted although another node has asked for them")
	}

	p.owner.Publish(changes("a", "2x"))
	p.pull()
	p.reader.want(w, "")
	p.reader.want(early, "gap")
	p.reader.Publish(changes("a", "0x"))
	p.owner.Publish(append(changes("a", "2y", "3x"), changes("b", "2z")...))
	p.owner.Publish(changes("a", "2z"))
	p.pull()
	p.reader.want(w, "0x 2y 3x 2z")

	// All nodes know these anyway.
	p.owner.Publish([]model.Change{{Class: model.ClassSetting, Address: model.Address{Tenant: "a"}}, {Class: model.ClassWorker, Address: model.Address{Tenant: "a"}}})
	if p.ready {
		t.Errorf("the owner sends %+v", p.cut())
	}
	p.reader.quiet(w)
}

// The first page of a watch may wait until all other nodes send their changes, or cannot be asked.
func TestSettle(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	w := p.reader.watch("a", "")
	settled := func(want bool) {
		t.Helper()
		begun := time.Now()
		patience := 10 * time.Millisecond
		if want {
			patience = time.Minute
		}
		w.Settle(t.Context(), patience)
		if took := time.Since(begun); (took < patience) != want {
			t.Errorf("it has waited for %s of %s", took, patience)
		}
	}
	settled(false)
	p.inlet().Lose()
	settled(true)
	p.pull()
	settled(true)

	w = p.reader.watch("b", "")
	settled(false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Settle(t.Context(), time.Minute)
	}()
	time.Sleep(time.Millisecond)
	p.pull()
	<-done
	w = p.reader.watch("c", "")
	p.in.Refuse()
	settled(true)
	if _, _, ok := p.in.Next(nil); ok {
		t.Error("the reader asks a node again that does not know demands")
	}
}

// A second tenant interrupts the demand that waits. Its watchers learn that the feed is partial,
// until the other node has confirmed the tenant. The watchers of the first tenant notice nothing.
func TestAnotherTenant(t *testing.T) {
	t.Parallel()
	p, w := watching(t)
	b := p.reader.watch("b", "")
	if p.waits {
		t.Error("the demand for one tenant still waits")
	}
	p.reader.want(b, "partial")
	p.owner.Publish(append(changes("b", "2lost"), changes("a", "2x")...))
	p.pull()
	p.reader.want(b, "gap")
	p.owner.Publish(changes("b", "2y"))
	p.pull()
	p.reader.want(b, "2y")
	p.reader.want(w, "2x")

	b.Close()
	p.reader.pass(feed.DefaultLinger)
	if all, again, _ := p.reader.Following(); len(all) != 1 || again == 0 {
		t.Errorf("the reader follows %v, again after %s", all, again)
	}
	p.pull()
	p.owner.Publish(append(changes("b", "2z"), changes("a", "2y")...))
	if portion := p.answer(); len(portion.Pieces) != 1 || len(portion.Pieces[0].Changes) != 1 {
		t.Errorf("the owner sends %+v", portion)
	}
	p.reader.want(w, "2y")
}

// The last watcher leaves. The reader ends its subscription when it drops the changes, and begins
// another one with the next watcher.
func TestEndOfASubscription(t *testing.T) {
	t.Parallel()
	p, w := watching(t)
	w.Close()
	p.reader.pass(feed.DefaultLinger)
	if all, again, _ := p.reader.Following(); len(all) > 0 || again > 0 {
		t.Errorf("the reader follows %v, again after %s", all, again)
	}
	if p.waits {
		t.Error("the demand still waits")
	}
	d, _, ok := p.in.Next(nil)
	if !ok || !d.End || d.Subscription != p.demand.Subscription {
		t.Fatalf("the next demand is %+v, %t", d, ok)
	}
	p.owner.Unsubscribe(nodeOf(1), d.Subscription)
	if p.owner.On() || p.reader.On() {
		t.Error("changes are still wanted")
	}
	d, idle, ok := p.in.Next(nil)
	if idle == nil || !ok {
		t.Fatalf("the next demand is %+v, %t", d, ok)
	}

	w = p.reader.watch("a", "")
	select {
	case <-idle:
	default:
		t.Error("the inlet sleeps although a caller watches")
	}
	p.pull()
	p.reader.want(w, "")
	p.owner.Publish(changes("a", "2x"))
	p.pull()
	p.reader.want(w, "2x")
}

// A node that asks for nothing loses its subscription after a while, but not while its demand
// waits.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	p, w := watching(t)
	p.owner.pass(time.Hour)
	p.owner.Publish(changes("a", "2x"))
	p.pull()
	p.reader.want(w, "2x")

	p.owner.Publish(changes("a", "2y")) // takes the demand; the reader does not ask again
	p.owner.pass(15 * time.Second)
	p.owner.Publish(changes("b", "2z"))
	if p.owner.On() {
		t.Error("changes are wanted for a node that asks for nothing")
	}
	if _, err := p.owner.Cut(nodeOf(1), p.demand.Subscription, p.demand.After); !fault.Is(err, fault.NotFound) {
		t.Errorf("the owner has a portion, %v", err)
	}
	p.in.Lose()
	p.reader.want(w, "gap partial")
	p.waits = false
	p.pull()
	p.reader.want(w, "gap")
}

// A reader that asks again, because it has interrupted the first demand, gets the same portion. A
// portion with another number is an error.
func TestNumbersOfPortions(t *testing.T) {
	t.Parallel()
	p, w := watching(t)
	p.owner.Publish(changes("a", "2x"))
	first := p.cut() // the answer to a demand that the reader has given up
	p.ask()
	p.owner.Publish(changes("a", "2y"))
	if again := p.cut(); again.Number != first.Number || len(again.Pieces) != 1 || len(again.Pieces[0].Changes) != 1 {
		t.Errorf("the portion is %+v, then %+v", first, again)
	}
	p.pull()
	p.reader.want(w, "2x 2y")

	for _, number := range []int64{first.Number, first.Number + 5, 0, -1} {
		if err := p.in.Take(&feed.Portion{Number: number}); !fault.Is(err, fault.Invalid) {
			t.Errorf("portion %d: %v", number, err)
		}
	}
	for _, d := range []feed.Demand{{Subscription: p.demand.Subscription, After: 99}, {Subscription: p.demand.Subscription, After: -1}, {Subscription: 1, After: -7}} {
		if _, err := p.owner.Cut(nodeOf(1), d.Subscription, d.After); !fault.Is(err, fault.NotFound) {
			t.Errorf("%+v: %v", d, err)
		}
	}
	if _, err := p.owner.Subscribe(nodeOf(1), &feed.Demand{Subscription: 1, After: 5}, nil); !fault.Is(err, fault.NotFound) {
		t.Errorf("a subscription that has ended: %v", err)
	}
	if _, err := p.owner.Subscribe(nodeOf(9), &feed.Demand{Subscription: 1}, nil); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a subscription of an unknown node: %v", err)
	}
	if _, err := p.owner.Subscribe(nodeOf(1), &feed.Demand{Tenants: make([]string, feed.MostTenants+1)}, nil); !fault.Is(err, fault.Exhausted) {
		t.Errorf("too many tenants: %v", err)
	}
}

// The feed checks what another node sends. It leaves out changes of tenants for which this node has
// not asked, of shards that another node owns, and of classes that nodes do not send each other.
func TestMalformedPortions(t *testing.T) {
	t.Parallel()
	p, w := watching(t)
	number := p.demand.After
	send := func(pieces ...feed.Piece) error {
		number++
		return p.in.Take(&feed.Portion{Number: number, Pieces: pieces})
	}
	b := p.reader.watch("b", "") // the other node has not confirmed it
	p.reader.want(b, "partial")
	all := append(changes("a", "2x", "0stolen"), changes("b", "2x")...)
	all = append(all, model.Change{Class: model.ClassWorker, Address: model.Address{Tenant: "a", Key: "2w"}}, model.Change{Class: "new", Address: model.Address{Tenant: "a", Key: "2w"}})
	if err := send(feed.Piece{Kind: feed.PieceChanges, Changes: all}, feed.Piece{Kind: feed.PieceTenants, Version: 99}, feed.Piece{Kind: feed.PieceLost, Tenant: "b"}); err != nil {
		t.Error(err)
	}
	p.reader.want(w, "2x")
	p.reader.quiet(b)
	if err := send(feed.Piece{Kind: 99}); err != nil {
		t.Error(err)
	}
	p.reader.want(w, "gap") // a newer build reports something
	if err := send(feed.Piece{Kind: feed.PieceClaim, Shards: shards(testShards)}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a shard that does not exist: %v", err)
	}
}

// The owner keeps a bounded number of changes. If one tenant has too many, only its watchers get a
// gap notice.
func TestSubscriptionWithoutRoom(t *testing.T) {
	t.Parallel()
	one := changes("a", "2x")[0]
	for name, bound := range map[string]func(*feed.Config){
		"count": func(c *feed.Config) { c.Changes = 20 },
		"bytes": func(c *feed.Config) { c.Bytes = 20 * one.Size() },
		"total": func(c *feed.Config) { c.Total = 20 * one.Size() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, a := watching(t, bound)
			b := p.reader.watch("b", "")
			p.pull()
			p.reader.want(b, "")
			p.owner.Publish(changes("b", "2first"))

			for range 3 {
				p.owner.Publish(changes("a", "2x", "2x", "2x", "2x", "2x", "2x", "2x", "2x", "2x", "2x", "2x"))
			}
			p.owner.Publish(append(changes("a", "2last"), changes("b", "2last")...))
			p.pull()
			p.reader.want(a, "gap")
			p.reader.want(b, "2first 2last")
			p.owner.Publish(changes("a", "2after"))
			p.pull()
			p.reader.want(a, "2after")
		})
	}
}

// If many tenants have changes, and none has most of them, the owner drops everything.
func TestSubscriptionOfManyTenants(t *testing.T) {
	t.Parallel()
	p := newPair(t, func(c *feed.Config) { c.Changes = 20 })
	var all []*feed.Watcher
	for i := range 10 {
		all = append(all, p.reader.watch(fmt.Sprint("t", i), ""))
	}
	p.pull()
	for _, w := range all {
		p.reader.want(w, "")
	}
	for n := range 3 {
		for i := range all {
			p.owner.Publish(changes(fmt.Sprint("t", i), fmt.Sprint("2-", n)))
		}
	}
	p.pull()

	for i, w := range all {
		got, _ := p.reader.next(w)
		if !strings.HasPrefix(got, "gap") || strings.Contains(got, "partial") {
			t.Errorf("tenant %d gets %q", i, got)
		}
	}

	for range 100 { // shards that come and go need bounded room, too
		p.owner.Release(shards(2))
		p.owner.Claim(shards(2))
	}
	p.ask()
	portion := p.answer()
	if len(portion.Pieces) > 20 {
		t.Errorf("the owner keeps %d pieces", len(portion.Pieces))
	}
	p.pull()
	got, _ := p.reader.next(all[0])
	if got != "gap" {
		t.Errorf("then it gets %q", got)
	}
}

// A shard moves from the owner to a third node, and the messages of the two nodes arrive in any
// order. Watchers get no change of the old owner after one of the new owner without a gap notice.
// The feed is partial only while no node says that it owns the shard.
func TestMovesBetweenNodes(t *testing.T) {
	t.Parallel()
	third := nodeOf(3)
	setup := func() (*pairOf, *feed.Watcher, func(...feed.Piece)) {
		p, w := watching(t)
		p.reader.SetPeers([]model.NodeID{nodeOf(2), third})
		all, _, _ := p.reader.Following()
		in := all[slices.IndexFunc(all, func(in *feed.Inlet) bool { return in.Node() == third })]
		d, _, _ := in.Next(nil)
		number := int64(0)
		send := func(pieces ...feed.Piece) {
			t.Helper()
			number++
			if err := in.Take(&feed.Portion{Number: number, Pieces: pieces}); err != nil {
				t.Fatal(err)
			}
		}
		send(feed.Piece{Kind: feed.PieceRestart, Version: d.Version})
		return p, w, send
	}
	claim := feed.Piece{Kind: feed.PieceClaim, Shards: shards(2)}
	release := feed.Piece{Kind: feed.PieceRelease, Shards: shards(2)}
	change := func(key string) feed.Piece { return feed.Piece{Kind: feed.PieceChanges, Changes: changes("a", key)} }

	// The message of the old owner arrives first.
	p, w, send := setup()
	p.reader.quiet(w)
	p.owner.Publish(changes("a", "2x"))
	p.owner.Release(shards(2))
	p.pull()
	p.reader.want(w, "partial 2x")
	send(claim)
	p.reader.want(w, "gap")
	send(change("2y"))
	p.reader.want(w, "2y")

	// The message of the new owner arrives first.
	p, w, send = setup()
	p.owner.Publish(changes("a", "2x", "3x"))
	p.owner.Release(shards(2))
	send(claim)
	p.reader.want(w, "gap")
	send(change("2y"))
	p.reader.want(w, "2y")
	p.pull()
	p.reader.want(w, "3x") // the gap notice covers 2x
	send(change("2z"))
	p.reader.want(w, "2z")

	// The shard moves there and back. The claim of the third node comes last, and its release even
	// later.
	p, w, send = setup()
	p.owner.Release(shards(2))
	p.owner.Claim(shards(2))
	p.pull()
	p.reader.want(w, "gap")
	p.owner.Publish(changes("a", "2y"))
	p.pull()
	p.reader.want(w, "2y")
	send(claim)
	p.reader.want(w, "gap")
	send(change("2x"))
	p.reader.want(w, "2x")
	p.owner.Publish(changes("a", "2z"))
	p.pull()
	p.reader.quiet(w)
	send(release)
	p.reader.want(w, "gap") // covers 2z
	p.owner.Publish(changes("a", "2+"))
	p.pull()
	p.reader.want(w, "2+")

	// The shard moves to this node. A late claim of another node counts for nothing.
	p, w, send = setup()
	p.owner.Publish(changes("a", "2x"))
	p.owner.Release(shards(2))
	p.reader.Claim(shards(2))
	p.reader.want(w, "gap")
	p.reader.Publish(changes("a", "2y"))
	p.pull()
	p.reader.want(w, "2y")
	send(claim)
	p.reader.want(w, "gap")
	send(change("2late"), release)
	p.reader.quiet(w)
	p.reader.Publish(changes("a", "2z"))
	p.reader.want(w, "2z")

	// The third node has the shard and dies.
	p, w, send = setup()
	p.owner.Release(shards(2))
	send(claim)
	p.pull()
	p.reader.want(w, "gap")
	p.reader.SetPeers([]model.NodeID{nodeOf(2)})
	p.reader.want(w, "gap partial")
	p.owner.Claim(shards(2))
	p.pull()
	p.reader.want(w, "gap")
}

// A node without shards can come and go. Watchers notice nothing.
func TestNodeWithoutShards(t *testing.T) {
	t.Parallel()
	p, w := watching(t)
	p.reader.SetPeers([]model.NodeID{nodeOf(2), nodeOf(3)})
	p.reader.quiet(w)
	p.reader.SetPeers([]model.NodeID{nodeOf(2)})
	p.reader.quiet(w)
	p.reader.Leave()
	p.reader.want(w, "gap partial")
}

// Only the tap of the node that has made a change gets it.
func TestTapOfTheOwner(t *testing.T) {
	t.Parallel()
	var mine int
	p := &pairOf{t: t, reader: newDeskOfMany(t, func(c *feed.Config) { c.Tap = func(all []model.Change) { mine += len(all) } }), owner: newDeskOfMany(t)}
	p.reader.SetPeers([]model.NodeID{nodeOf(2)})
	p.owner.SetPeers([]model.NodeID{nodeOf(1)})
	p.owner.Claim(shards(0, 1, 2, 3))
	w := p.reader.watch("a", "")
	p.pull()
	p.reader.want(w, "")
	p.owner.Publish(changes("a", "2x"))
	p.pull()
	p.reader.want(w, "2x")
	if mine > 0 {
		t.Errorf("the tap gets %d changes of another node", mine)
	}
}

// A portion ends with a change that the feed leaves out, because another node owns its shard by
// now. Watchers that wait still get the changes before it at once.
func TestPortionThatEndsWithALateChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, w := watching(t)
		third := nodeOf(3)
		p.reader.SetPeers([]model.NodeID{nodeOf(2), third})
		all, _, _ := p.reader.Following()
		in := all[slices.IndexFunc(all, func(in *feed.Inlet) bool { return in.Node() == third })]
		d, _, _ := in.Next(nil)
		number := int64(0)
		send := func(pieces ...feed.Piece) {
			t.Helper()
			number++
			if err := in.Take(&feed.Portion{Number: number, Pieces: pieces}); err != nil {
				t.Fatal(err)
			}
		}
		send(feed.Piece{Kind: feed.PieceRestart, Version: d.Version, Shards: shards(2)})
		p.reader.want(w, "gap")
		got := make(chan model.ChangePage, 1)
		go func() {
			page, err := w.Next(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- page
		}()
		synctest.Wait()

		send(feed.Piece{Kind: feed.PieceChanges, Changes: changes("a", "2x", "3x")}) // shard 3 belongs to the owner
		synctest.Wait()
		select {
		case page := <-got:
			if len(page.Changes) != 1 || page.Changes[0].Address.Key != "2x" {
				t.Errorf("the watcher gets %+v", page)
			}
		default:
			t.Fatal("the watcher still waits")
		}
	})
}
