package breaker

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// ToOwner is what a place tells the owner: how calls have ended, and whether it wants news, or a probe.
type ToOwner struct {
	Reports []Report `cbor:"1,keyasint,omitempty"`
	// Ask wants to be told how the breaker stands, now and whenever it changes, and a probe if there is one to give.
	Ask bool `cbor:"2,keyasint,omitempty"`
	// Lease is how long the probe may take, if longer than usual.
	Lease time.Duration `cbor:"3,keyasint,omitempty"`
	// RetryAfter is what the other side has said; zero for nothing.
	RetryAfter model.Time `cbor:"4,keyasint,omitempty"`
	// Leave ends the news for this place.
	Leave bool `cbor:"5,keyasint,omitempty"`
}

// Report is how one call ended, or how many succeeded.
type Report struct {
	Permit Permit  `cbor:"1,keyasint"`
	How    Outcome `cbor:"2,keyasint,omitempty"`
	// Calls is how many successes of a closed breaker this stands for, which began to end at At.
	Calls int64      `cbor:"3,keyasint,omitempty"`
	At    model.Time `cbor:"4,keyasint,omitempty"`
}

// News is how a breaker stands.
type News struct {
	State      State `cbor:"1,keyasint,omitempty"`
	Generation int64 `cbor:"2,keyasint"`
	// Until is before when nothing passes; zero when a call passes or may ask for a probe.
	Until model.Time `cbor:"3,keyasint,omitempty"`
	Why   string     `cbor:"4,keyasint,omitempty"`
	// Tally is how often successes are to be told; zero for never, because only failures count.
	Tally time.Duration `cbor:"5,keyasint,omitempty"`
	// Probe is given to this place; zero for none.
	Probe Permit `cbor:"6,keyasint,omitzero"`
	// Answer tells that this is the answer to an Ask.
	Answer bool `cbor:"7,keyasint,omitempty"`
}

// Send is news for a place.
type Send struct {
	To   model.ShardID
	News News
}

// Owner is a breaker with the places that act on it. Its methods beside those of the breaker return what to tell them.
type Owner struct {
	*Breaker
	views []model.ShardID // sorted
}

// Receive takes what a place tells. It reports whether the breaker must be stored, in the commit that consumes the message and writes the news.
func (o *Owner) Receive(now model.Time, from model.ShardID, m *ToOwner) (sends []Send, changed bool) {
	now = o.tick(now)
	for _, r := range m.Reports {
		if r.Calls > 0 {
			if o.state == Closed && r.Permit.Generation == o.generation {
				o.window.tally(min(max(r.At, 0), now), r.Calls, 0)
			}
			continue
		}
		changed = o.Done(now, r.Permit, r.How) || changed
	}
	if !m.RetryAfter.IsZero() {
		changed = o.RetryAfter(now, m.RetryAfter) || changed
	}
	i, known := slices.BinarySearch(o.views, from)
	moved := false // who acts on it is stored too, so that the next owner can tell them
	switch {
	case m.Leave && known:
		o.views, moved = slices.Delete(o.views, i, i+1), true
	case m.Ask && !known:
		o.views, moved = slices.Insert(o.views, i, from), true
	}
	var probe Permit
	if m.Ask {
		if a := o.Allow(now, m.Lease); a.OK && a.Permit.Probe != 0 {
			probe, changed = a.Permit, true
		}
	}
	if changed {
		sends = o.Tell(now)
	} else if m.Ask {
		sends = []Send{{To: from, News: o.news(now)}}
	}
	for i := range sends {
		if sends[i].To == from {
			sends[i].News.Probe, sends[i].News.Answer = probe, m.Ask
		}
	}
	return sends, changed || moved
}

// Tell is the news for every place; after whatever has changed the breaker on its owner's side.
func (o *Owner) Tell(now model.Time) []Send {
	news := o.news(o.tick(now))
	sends := make([]Send, len(o.views))
	for i, to := range o.views {
		sends[i] = Send{To: to, News: news}
	}
	return sends
}

func (b *Breaker) news(now model.Time) News {
	n := News{State: b.state, Generation: b.generation, Why: b.why}
	if b.config.Ratio > 0 {
		n.Tally = b.config.Window / buckets
	}
	switch {
	case now < b.held:
		n.Until, n.Why = max(b.held, b.opens()), b.heldWhy
	case now < b.opens():
		n.Until = b.opens()
	case b.state == HalfOpen && len(b.probes) >= b.config.Probes:
		for _, p := range b.probes {
			if n.Until.IsZero() || p.Lease < n.Until {
				n.Until = p.Lease
			}
		}
		if n.Until <= now {
			n.Until = 0
		} else {
			n.Why = "half-open, all probes are under way"
		}
	}
	return n
}
