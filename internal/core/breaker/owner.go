package breaker

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// ToOwner is a message of a place to the breaker. A place is an incarnation of a node that lets
// calls through. The message says how calls have ended, and whether the place wants a probe.
type ToOwner struct {
	Reports []Report `cbor:"1,keyasint,omitempty"`
	// Ask requests a probe, if one is available.
	Ask bool `cbor:"2,keyasint,omitempty"`
	// Lease is how long the probe may take, if that is longer than the lease in the config.
	Lease time.Duration `cbor:"3,keyasint,omitempty"`
	// RetryAfter is the Retry-After that the called service has sent; zero if it has sent none.
	RetryAfter model.Time `cbor:"4,keyasint,omitempty"`
	// Place is the sender, and Seq counts its messages. If the sender repeats a message because it
	// does not know whether the message was stored, the breaker applies the message only once. Both
	// are zero for a message that is never repeated.
	Place int64 `cbor:"5,keyasint,omitempty"`
	Seq   int64 `cbor:"6,keyasint,omitempty"`
}

// heard is what a breaker remembers of a place: the number of the last message that it received
// from the place, and the last probe that it gave to the place.
type heard struct {
	Place int64 `cbor:"1,keyasint"`
	Seq   int64 `cbor:"2,keyasint"`
	// Asked is the number of the message that asked for Probe; zero for never.
	Asked int64  `cbor:"3,keyasint,omitempty"`
	Probe Permit `cbor:"4,keyasint,omitzero"`
}

// maxHeard is how many places a breaker remembers. It remembers the places that sent the most
// recent messages.
const maxHeard = 64

// Report is how one call ended, or how many calls succeeded.
type Report struct {
	Permit Permit  `cbor:"1,keyasint"`
	How    Outcome `cbor:"2,keyasint,omitempty"`
	// Calls is how many successes of a closed breaker this report counts. The first of them ended
	// at At.
	Calls int64      `cbor:"3,keyasint,omitempty"`
	At    model.Time `cbor:"4,keyasint,omitempty"`
}

// News is what the owner of a breaker tells a place about its state.
type News struct {
	State      State `cbor:"1,keyasint,omitempty"`
	Generation int64 `cbor:"2,keyasint"`
	// Until is the time before which no call passes. It is zero when calls pass, or may ask for a
	// probe.
	Until model.Time `cbor:"3,keyasint,omitempty"`
	Why   string     `cbor:"4,keyasint,omitempty"`
	// Tally is how long the place counts successes before it reports their number. It is zero if
	// the place reports no successes, because the config has no Ratio and only failures count.
	Tally time.Duration `cbor:"5,keyasint,omitempty"`
	// Probe is the probe that the owner gives to this place; zero for none.
	Probe Permit `cbor:"6,keyasint,omitzero"`
	// Answer says that this is the answer to an Ask.
	Answer bool `cbor:"7,keyasint,omitempty"`
	// Held is the time before which nothing passes, not even a probe that was given earlier.
	Held model.Time `cbor:"8,keyasint,omitempty"`
}

// Receive applies a message of a place. If the place asked for a probe and gets one, Receive
// returns it. changed says that the breaker must be stored. It is false if only the number of the
// message is new. All places that share the breaker add to the same counts.
func (b *Breaker) Receive(now model.Time, m *ToOwner) (probe Permit, changed bool) {
	told := now // the time by the caller's clock, which may be behind the time of the breaker
	now = b.tick(now)
	var from *heard

	if m.Place != 0 {
		news := false
		if from, news = b.hear(m.Place, m.Seq); !news {
			return b.givenProbe(from, m), false
		}
	}

	for _, r := range m.Reports {
		counts := b.state == Closed && r.Permit.Generation == b.generation && r.Permit.Probe == 0
		switch {
		case r.Calls == 0:
			changed = b.Done(now, r.Permit, r.How) || counts && r.How != Neither || changed
		case counts:
			b.window.tally(min(max(r.At, 0), now), r.Calls, 0)
			changed = true
		}
	}

	if !m.RetryAfter.IsZero() {
		changed = b.RetryAfter(told, m.RetryAfter) || changed
	}

	if m.Ask {
		if a := b.Allow(now, m.Lease); a.OK && a.Permit.Probe != 0 {
			probe, changed = a.Permit, true
			if from != nil {
				from.Asked, from.Probe = m.Seq, probe
			}
		}
	}

	return probe, changed
}

// hear notes a message of a place. It reports false if the breaker has received the message before.
func (b *Breaker) hear(place, seq int64) (from *heard, news bool) {
	h := heard{Place: place}
	if i := slices.IndexFunc(b.heard, func(h heard) bool { return h.Place == place }); i >= 0 {
		if seq <= b.heard[i].Seq {
			return &b.heard[i], false
		}
		h = b.heard[i]
		b.heard = slices.Delete(b.heard, i, i+1)
	} else if len(b.heard) == maxHeard {
		b.heard = slices.Delete(b.heard, 0, 1)
	}
	h.Seq = seq
	b.heard = append(b.heard, h)
	return &b.heard[len(b.heard)-1], true
}

// givenProbe returns the probe that the breaker gave to the place when the place first sent this
// message, if that probe is still in flight. The place repeats the message because it has not
// received the answer.
func (b *Breaker) givenProbe(to *heard, m *ToOwner) (probe Permit) {
	if m.Ask && to.Asked == m.Seq && slices.ContainsFunc(b.probes, func(p slot) bool { return p.ID == to.Probe.Probe }) {
		return to.Probe
	}
	return Permit{}
}

// News returns the state of the breaker, for a place that acts on it.
func (b *Breaker) News(now model.Time) News { return b.news(max(now, b.now)) }

func (b *Breaker) news(now model.Time) News {
	n := News{State: b.state, Generation: b.generation, Why: b.why, Held: b.held}
	if b.config.Ratio > 0 {
		n.Tally = b.config.Window / buckets
	}
	switch {
	case now < b.held:
		n.Until, n.Why = max(b.held, b.probeTime()), b.heldWhy
	case now < b.probeTime():
		n.Until = b.probeTime()
	case b.state == HalfOpen:
		if until, all := b.allUnderWay(now); all {
			n.Until, n.Why = until, "half-open, all probes are under way"
		}
	}
	return n
}

// allUnderWay reports whether all slots are taken, and when the first lease ends. After a change of
// the config, more probes may be in flight than it allows.
func (b *Breaker) allUnderWay(now model.Time) (until model.Time, all bool) {
	count := 0
	for _, p := range b.probes {
		if p.Lease > now {
			count++
			if until.IsZero() || p.Lease < until {
				until = p.Lease
			}
		}
	}
	return until, count >= b.config.Probes
}
