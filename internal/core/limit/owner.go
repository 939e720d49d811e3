package limit

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// Owner leases the permits and tokens of one resource to places. Its methods return
// messages, which are valid until the next call. The caller must send them together with the commit
// that stores the owner.
type Owner struct {
	numbers Numbers
	leases  []lease // sorted by place
	leased  int     // permits of all leases
	out     int64   // tokens of all leases
	over    int     // holders without a permit, at all places
	bucket  bucket
	asked   int64 // number of the last request
	sends   []Send
}

// lease is what a place has and wants.
type lease struct {
	Place      Place   `cbor:"1,keyasint"`
	Permits    int     `cbor:"2,keyasint,omitempty"`
	Tokens     int64   `cbor:"3,keyasint,omitempty"`
	Want       int     `cbor:"4,keyasint,omitempty"`
	WantTokens int64   `cbor:"5,keyasint,omitempty"`
	Recalled   recalls `cbor:"6,keyasint,omitzero"`
	// Asked gives the order in which places are served. A place gets the next number when it asks,
	// and again when it has been served.
	Asked int64 `cbor:"7,keyasint,omitempty"`
	// Over counts the holders at the place that have no permit, because the place found them
	// already running. The owner keeps one permit back for each.
	Over int `cbor:"8,keyasint,omitempty"`

	send ToPlace
}

// isWaiting reports whether the place waits for something.
func (p *lease) isWaiting() bool { return p.Want > 0 || p.WantTokens > 0 }

// takeBack applies what the place has given back or spent. It returns how many permits and tokens
// are free again and how many tokens are spent. It ignores permits and tokens that were not leased
// to the place.
func (p *lease) takeBack(m *ToOwner) (permits int, tokens, spent int64) {
	permits = min(m.Permits, p.Permits)
	p.Permits -= permits
	p.Recalled.answer(permits)
	p.Recalled.atMost(p.Permits)
	spent = min(m.Spent, p.Tokens)
	tokens = min(m.Tokens, p.Tokens-spent)
	p.Tokens -= spent + tokens
	return permits, tokens, spent
}

// NewOwner returns an owner with all permits and a full bucket. The numbers must be valid.
func NewOwner(n Numbers, now model.Time) *Owner {
	o := &Owner{numbers: n, bucket: bucket{At: now}}
	o.bucket.convert(&Numbers{}, &n)
	return o
}

// Receive applies a message of a place, and then decides as Tick does.
func (o *Owner) Receive(now model.Time, from Place, m ToOwner) []Send {
	o.Note(now, from, m)
	return o.settle(now)
}

// Note applies a message of a place without a decision. A caller that has messages of several
// places notes all of them first, and then calls Tick. So the owner knows the wants of all places
// before it serves any of them.
func (o *Owner) Note(now model.Time, from Place, m ToOwner) {
	o.bucket.fill(now, &o.numbers, o.out)
	p := o.lease(from)
	returned, tokens, spent := p.takeBack(&m)
	o.leased -= returned
	o.out -= spent + tokens
	o.over += m.Over - p.Over
	p.Over = m.Over
	o.bucket.Level += tokens * o.numbers.Per.Microseconds() // bounded: cannot overflow
	if !p.isWaiting() && (m.Want > 0 || m.WantTokens > 0) {
		o.last(p)
	}
	p.Want, p.WantTokens = m.Want, m.WantTokens
}

// Configure changes the numbers. Tasks that hold permits may finish. While more permits are leased
// than the new limit allows, the owner leases none.
func (o *Owner) Configure(now model.Time, n Numbers) []Send {
	o.bucket.fill(now, &o.numbers, o.out)
	o.bucket.convert(&o.numbers, &n)
	o.numbers = n
	return o.settle(now)
}

// Tick decides which places get permits and tokens. The caller calls it after Note, and
// at the time that Next returns, because tokens have accrued by then.
func (o *Owner) Tick(now model.Time) []Send { return o.settle(now) }

// Next returns when the next token can be leased to a place that wants one; zero for never.
func (o *Owner) Next() model.Time {
	if o.numbers.Rate == 0 || o.out >= o.numbers.burst() || !slices.ContainsFunc(o.leases, func(p lease) bool { return p.WantTokens > 0 }) {
		return 0
	}
	return o.bucket.next(&o.numbers)
}

// DropPlace ends the lease of a place that has died. The tasks that held its permits have ended, or
// other places have registered them. Its permits are free again. Its tokens count as spent.
func (o *Owner) DropPlace(now model.Time, place Place) []Send {
	o.bucket.fill(now, &o.numbers, o.out)
	if i, found := slices.BinarySearchFunc(o.leases, place, byPlace); found {
		p := o.leases[i]
		o.leases = slices.Delete(o.leases, i, i+1)
		o.leased -= p.Permits
		o.out -= p.Tokens
		o.over -= p.Over
	}
	return o.settle(now)
}

// Empty drops the tokens that have accrued, because it is unknown how many were spent before.
func (o *Owner) Empty(now model.Time) { o.bucket = bucket{At: now} }

// Numbers returns the numbers that apply.
func (o *Owner) Numbers() Numbers { return o.numbers }

// LeasedTotal returns how many permits and tokens are at places or on their way.
func (o *Owner) LeasedTotal() (permits int, tokens int64) { return o.leased, o.out }

// Lease describes a lease for operators.
type Lease struct {
	Place   Place
	Permits int
	Over    int // holders without a permit
	Want    int
}

// Leases lists the places that have or want something.
func (o *Owner) Leases() []Lease {
	list := make([]Lease, len(o.leases))
	for i, p := range o.leases {
		list[i] = Lease{p.Place, p.Permits, p.Over, p.Want}
	}
	return list
}

// Idle reports whether no place has or wants anything, and the bucket is full. The caller may drop
// an idle owner, because a new owner is equal to it.
func (o *Owner) Idle(now model.Time) bool {
	if len(o.leases) > 0 {
		return false
	}
	o.bucket.fill(now, &o.numbers, o.out)
	return o.bucket.Level == o.numbers.burst()*o.numbers.Per.Microseconds() || o.numbers.Rate == 0
}

// byPlace compares a lease with a place for a binary search.
func byPlace(p lease, place Place) int { return cmp.Compare(p.Place, place) }

// lease finds the lease of a place, or adds one. The pointer is valid until another lease is added.
func (o *Owner) lease(place Place) *lease {
	i, found := slices.BinarySearchFunc(o.leases, place, byPlace)
	if !found {
		o.leases = slices.Insert(o.leases, i, lease{Place: place})
	}
	return &o.leases[i]
}

// settle leases free permits and tokens to places that want them, recalls what is still missing,
// and collects the messages.
func (o *Owner) settle(now model.Time) []Send {
	o.bucket.fill(now, &o.numbers, o.out)
	if o.numbers.Concurrency > 0 {
		o.cover()
		o.grant()
		o.cut()
		o.turn()
		o.spare()
	}

	// Collect the messages, and drop leases that are empty.
	o.grantTokens()
	o.sends = o.sends[:0]
	kept := o.leases[:0]
	for _, p := range o.leases {
		if p.send != (ToPlace{}) {
			o.sends = append(o.sends, Send{p.Place, p.send})
			p.send = ToPlace{}
		}
		if p.Permits > 0 || p.Tokens > 0 || p.Over > 0 || p.isWaiting() {
			kept = append(kept, p)
		}
	}

	o.leases = kept
	return o.sends
}

// cover leases permits for tasks that hold the resource without a permit. No new task starts
// because of that.
func (o *Owner) cover() {
	for i := range o.leases {
		p := &o.leases[i]
		if n := min(p.Over, o.numbers.Concurrency-o.leased); n > 0 {
			p.give(o, n)
		}
	}
}

// grant leases free permits in portions, each to the place that has the fewest. When no place wants
// more, the place that was served last gets some permits in advance. It gets the free permits
// divided by the number of places that have permits, so that enough are left for the others.
func (o *Owner) grant() {
	var last *lease
	for free := o.free(); free > 0; free = o.free() {
		wanting, having := 0, 0
		var q *lease
		for i := range o.leases {
			p := &o.leases[i]
			if p.Permits > 0 {
				having++
			}
			if p.Want == 0 {
				continue
			}
			wanting++
			if q == nil || p.Permits < q.Permits || p.Permits == q.Permits && p.Asked < q.Asked {
				q = p
			}
		}

		n := 0
		switch {
		case q == nil && last == nil:
			return
		case q == nil:
			if n = free / max(having, 1); n == 0 {
				return
			}
			last.give(o, n)
			return
		case wanting == 1:
			n = min(free, q.Want)
		default:
			n = min(q.Want, max(1, free/(2*wanting)))
		}

		q.give(o, n)
		last = q
	}
}

// free returns how many permits may be leased.
func (o *Owner) free() int { return o.numbers.Concurrency - o.leased - o.over }

// give leases n permits to a place.
func (p *lease) give(o *Owner, n int) {
	p.Permits += n
	o.leased += n
	found := min(p.Over, n) // holders without a permit get permits first
	p.Over -= found
	o.over -= found
	p.send.Permits += n
	p.Want = max(p.Want-n, 0)
	o.last(p)
}

// last moves a place to the end of the line, because it has begun to wait or has been served.
func (o *Owner) last(p *lease) {
	o.asked++
	p.Asked = o.asked
}

// cut recalls the excess over a lowered limit from every place. The owner does not know which
// places have idle permits, and places return idle permits first. If more permits come back than
// needed, the owner leases them again.
func (o *Owner) cut() {
	over := o.leased - o.numbers.Concurrency
	for i := range o.leases {
		p := &o.leases[i]
		if n := min(over, p.Permits) - p.Recalled.Cut; n > 0 {
			p.Recalled.Cut += n
			p.send.Cut += n
			p.Recalled.atMost(p.Permits)
		}
	}
}

// most returns the place with the highest count, apart from one place that it ignores. It returns
// nil when all counts are zero.
func (o *Owner) most(but *lease, of func(*lease) int) (most *lease) {
	best := 0
	for i := range o.leases {
		if p := &o.leases[i]; p != but {
			if n := of(p); n > best {
				most, best = p, n
			}
		}
	}
	return most
}

// turn recalls permits from the places that have the most permits, for places that have less than
// their share. A place without any permit gets one when it is its turn, even if there are more
// places than permits.
func (o *Owner) turn() {
	if len(o.leases) < 2 {
		return
	}
	pending := 0
	for i := range o.leases {
		pending += o.leases[i].Recalled.Turn
	}
	share := max(1, o.numbers.Concurrency/max(len(o.leases), 1))

	rest := func(p *lease) int { return p.Permits - p.Recalled.Cut - p.Recalled.Turn }
	for _, q := range o.waitingPlaces() {
		has, want := q.Permits, q.Want
		for ; has < share && want > 0; has, want = has+1, want-1 {
			if pending > 0 {
				pending-- // an earlier recall serves this place
				continue
			}
			most := o.most(q, rest)
			if most == nil || has > 0 && rest(most) <= has+1 {
				break
			}
			most.Recalled.Turn++
			most.send.Turn++
			most.Recalled.atMost(most.Permits)
		}
	}
}

// waitingPlaces returns the places that want permits; the longest waiting place comes first.
func (o *Owner) waitingPlaces() (list []*lease) {
	for i := range o.leases {
		if o.leases[i].Want > 0 {
			list = append(list, &o.leases[i])
		}
	}
	slices.SortFunc(list, func(a, b *lease) int { return int(a.Asked - b.Asked) })
	return list
}

// spare recalls permits from places that do not want more. It recalls only as many as other places
// want.
func (o *Owner) spare() {
	missing := 0
	for i := range o.leases {
		missing += o.leases[i].Want
	}
	if missing == 0 {
		return
	}
	for i := range o.leases {
		p := &o.leases[i]
		if n := min(missing, p.Permits-p.Recalled.Cut-p.Recalled.Turn) - p.Recalled.Spare; p.Want == 0 && n > 0 {
			p.Recalled.Spare += n
			p.send.Spare += n
		}
	}
}

// grantTokens leases whole tokens in portions, each to the place that has the fewest. Among equals,
// the place that comes first in the line gets the portion.
func (o *Owner) grantTokens() {
	for free := min(o.bucket.tokens(&o.numbers), o.numbers.burst()-o.out); free > 0; free = min(o.bucket.tokens(&o.numbers), o.numbers.burst()-o.out) {
		wanting := int64(0)
		var q *lease
		for i := range o.leases {
			if p := &o.leases[i]; p.WantTokens > 0 {
				wanting++
				if q == nil || p.Tokens < q.Tokens || p.Tokens == q.Tokens && p.Asked < q.Asked {
					q = p
				}
			}
		}

		if q == nil {
			return
		}
		n := min(q.WantTokens, max(1, free/wanting))
		q.Tokens += n
		q.WantTokens -= n
		q.send.Tokens += n
		o.out += n
		o.bucket.Level -= n * o.numbers.Per.Microseconds()
		o.last(q)
	}
}
