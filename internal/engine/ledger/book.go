package ledger

import (
	"slices"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/model"
)

// Book is the ledger as one node sees it: the messages of the node to the owners on the pages, and
// the leases of the node.
//
// The engine passes every version of a page that it reads to the book (ApplyPage). To change a
// page, it calls Compose, writes the result if the stored page has not changed in between, and
// calls ApplyPage with it. It asks for DuePages after every call, and at the time of Wake.
type Book struct {
	// Gate is the gate whose limits are on the pages. The engine must call Post after every call to
	// the gate.
	Gate *gate.Gate

	place   limit.Place
	rules   *rule.Set
	alone   bool
	leaving bool
	clean   map[limit.Place]bool
	sheets  [Pages]sheet
}

// sheet is a page as the node knows it.
type sheet struct {
	places []limit.Place // all places that the page names
	body   []byte
	// unread says why the stored page cannot be read; nil if it can. While it is set, the body is
	// that of an earlier version. A page that is made from that body would drop permits that others
	// have leased since.
	unread error
	// queue holds messages to send. flight holds the messages of a write that may have landed; the
	// write has the number seq.
	queue, flight []gate.Message
	seq           int64
	posted        int64 // messages so far, including queue and flight
	accounts      map[rule.Resource]*limit.Account
	sole          bool       // the gate owns the limits of the page
	export        *page      // the owners that the gate had and that must now be written back
	wake          model.Time // when this place gets tokens that it waits for; zero for never
	due           bool       // there may be something to write
}

// New returns the book of a place without leases.
func New(place limit.Place) *Book {
	b := &Book{place: place}
	b.Gate = gate.New(place, func(id rule.Resource) bool { return b.sheets[PageOf(id)].sole })
	return b
}

// Post takes the gate's new messages. It reports whether there were any.
func (b *Book) Post() bool {
	out := b.Gate.Out()
	for _, m := range out {
		s := &b.sheets[PageOf(m.Resource)]
		s.queue = append(s.queue, m)
		s.due = true
		s.posted++
	}
	return len(out) > 0
}

// Mark returns how many messages have been posted so far, per page.
func (b *Book) Mark() (m Mark) {
	for i := range b.sheets {
		m[i] = b.sheets[i].posted
	}
	return m
}

// Mark is a point in the sequence of posted messages, for Landed.
type Mark [Pages]int64

// Landed reports whether everything that was posted before the mark is on a stored page, or on a
// page that this node keeps in memory.
func (b *Book) Landed(m *Mark) bool {
	for i := range b.sheets {
		if s := &b.sheets[i]; s.posted-int64(len(s.queue)+len(s.flight)) < m[i] {
			return false
		}
	}
	return true
}

// SetRules applies new numbers to the pages. The caller must set the rules of the gate as well.
func (b *Book) SetRules(rules *rule.Set) {
	b.rules = rules
	for i := range b.sheets {
		b.sheets[i].due = b.sheets[i].due || b.sheets[i].body != nil
	}
}

// SetAlone tells the book whether this node is the only node.
func (b *Book) SetAlone(alone bool) {
	if alone != b.alone {
		b.alone = alone
		for i := range b.sheets {
			b.sheets[i].due = b.sheets[i].due || alone && len(b.sheets[i].accounts) > 0
		}
	}
}

// Clean tells the book which places are certainly dead and have no uncounted claims: other nodes
// have counted all their claims on stored pages. The ledger frees the permits that these places had
// leased.
func (b *Book) Clean(places map[limit.Place]bool) {
	b.clean = places
	for i := range b.sheets {
		s := &b.sheets[i]
		s.due = s.due || slices.ContainsFunc(s.places, func(l limit.Place) bool { return places[l] })
	}
}

// Places returns all places that the pages name, except this one.
func (b *Book) Places() map[limit.Place]bool {
	all := map[limit.Place]bool{}
	for i := range b.sheets {
		for _, l := range b.sheets[i].places {
			all[l] = true
		}
	}
	delete(all, b.place)
	return all
}

// DuePages returns the pages that may have to be written now. A page that cannot be read is not
// among them.
func (b *Book) DuePages(now model.Time) (pages []int) {
	for i := range b.sheets {
		if s := &b.sheets[i]; s.unread == nil && (s.due || s.wake != 0 && s.wake <= now) {
			pages = append(pages, i)
		}
	}
	return pages
}

// Wake returns when a page becomes due because of time alone; zero for never.
func (b *Book) Wake() (wake model.Time) {
	for i := range b.sheets {
		if t := b.sheets[i].wake; t != 0 && b.sheets[i].unread == nil && (wake == 0 || t < wake) {
			wake = t
		}
	}
	return wake
}

// Leave prepares an orderly shutdown: it returns the unused permits, and marks the pages that only
// this node knows as due.
func (b *Book) Leave(now model.Time) {
	b.leaving = true
	for i := range b.sheets {
		if b.sheets[i].sole {
			b.handOver(now, i)
		}
	}
	b.Gate.Rest(now)
	b.Post()
	for i := range b.sheets {
		b.sheets[i].due = b.sheets[i].due || b.sheets[i].seq > 0
	}
}

// Compose returns what to write instead of the last seen page. needed is false if the page can stay
// as it is. Compose returns an error if the page cannot be read.
func (b *Book) Compose(now model.Time, number int) (body []byte, needed bool, err error) {
	s := &b.sheets[number]
	if s.unread != nil {
		return nil, false, s.unread
	}
	s.wake = 0
	p, err := decode(s.body)
	if err != nil {
		return nil, false, err
	}
	defer func() { s.due = needed }() // stays due if needed, because the write may fail
	for _, place := range sortedPlaces(b.clean) {
		needed = p.lapse(now, place) || needed
	}

	switch {
	case p.sole == b.place && s.sole:
	// The owners are in the memory of another node: leave messages for that node on the page.
	case p.sole != 0 && p.sole != b.place:
		needed = b.postMessages(s, p) || needed
	default:
		if s.export != nil {
			if p, err = s.export.copy(p); err != nil {
				return nil, false, err
			}
			needed = true
		}
		needed = b.apply(now, s, p) || needed
	}

	if !needed {
		s.rewake(now, p)
		return nil, false, nil
	}

	body, err = p.encode()
	return body, true, err
}

// postMessages puts the waiting messages on a page, once.
func (b *Book) postMessages(s *sheet, p *page) bool {
	if len(s.flight) == 0 && len(s.queue) > 0 {
		s.seq++
		s.flight, s.queue = s.queue, nil
	}
	if len(s.flight) == 0 || p.seen[b.place] >= s.seq {
		return false
	}
	for i := range s.flight {
		p.messages = append(p.messages, message{s.flight[i].Resource, b.place, s.flight[i].ToOwner})
	}
	p.seen[b.place] = s.seq
	return true
}

// apply makes all due changes on a page. The owners on the page must be up to date.
func (b *Book) apply(now model.Time, s *sheet, p *page) (changed bool) {
	changed = b.postMessages(s, p)
	heard := map[rule.Resource]bool{}
	// Note all messages before serving any of them, because the last message may return a permit
	// that the first one wants.
	for _, l := range p.messages {
		n, _ := b.rules.Numbers(l.id)
		p.owner(now, l.id, n).Note(now, l.place, l.told)
		heard[l.id] = true
	}

	p.messages = nil
	mine := false
	for _, id := range p.sortedLimits() {
		o := p.owners[id]
		if n, ok := b.rules.Numbers(id); ok && n != o.Numbers() {
			o.Configure(now, n)
			changed = true
		}
		if next := o.Next(); heard[id] {
			o.Tick(now)
		} else if next != 0 && next <= now && len(o.Tick(now)) > 0 {
			changed = true
		}
		if o.Idle(now) {
			delete(p.owners, id)
			continue
		}
		mine = mine || slices.ContainsFunc(o.Leases(), func(l limit.Lease) bool { return l.Place == b.place })
	}

	switch {
	// This node is leaving and has nothing on the page: remove its name.
	case b.leaving && !mine && len(s.flight) == 0 && p.seen[b.place] > 0:
		delete(p.seen, b.place)
		changed = true
	// This node is alone: take the whole page into memory.
	case b.alone && !b.leaving && s.export == nil && (changed || mine) && !p.isShared(b.place):
		p.sole, changed = b.place, true
	}

	return changed
}

// ApplyPage passes a stored page to the book: one that the engine has read, or has written after
// Compose. A second call with the same page changes nothing. If the book cannot read the page, it
// composes no page with this number until it gets a version that it can read.
func (b *Book) ApplyPage(now model.Time, number int, body []byte) error {
	s := &b.sheets[number]
	p, err := decode(body)
	if s.unread = err; err != nil {
		return err
	}
	s.body, s.wake, s.places = body, 0, s.places[:0]

	p.places(func(l limit.Place) {
		s.places = append(s.places, l)
		s.due = s.due || b.clean[l]
	})

	// The page has the number of the write, so the write has landed, even if its caller got an
	// error.
	if len(s.flight) > 0 && p.seen[b.place] >= s.seq {
		for i := range s.flight {
			s.account(s.flight[i].Resource).TakeBack(s.flight[i].ToOwner)
		}
		s.flight = nil
	}

	switch {
	case s.sole && p.sole == b.place:
		if len(p.messages) > 0 {
			b.handOver(now, number)
		}
		return nil
	case s.sole: // another node believes that this one is dead; the engine will find out soon
		s.sole = false
		b.Gate.Disown(now, func(id rule.Resource) bool { return PageOf(id) == number })
		return nil
	case p.sole == b.place && s.export != nil:
		s.due = true
		return nil
	}

	s.export = nil
	if p.sole == 0 || p.sole == b.place {
		b.look(now, s, p)
	}

	if p.sole == b.place {
		b.takeOver(now, number, p)
		switch {
		case b.leaving: // the page was taken before this node started to leave
			b.handOver(now, number)
			b.Gate.Rest(now)
		case len(p.messages) > 0:
			// other nodes wrote messages before this node knew that it had taken the page
			b.handOver(now, number)
		}
	}

	s.due = s.due || len(s.queue)+len(s.flight) > 0
	b.Post()
	return nil
}

// look finds on the page which permits this place was granted and which permits others want back.
func (b *Book) look(now model.Time, s *sheet, p *page) {
	for _, id := range p.sortedLimits() {
		if slices.ContainsFunc(p.owners[id].Leases(), func(l limit.Lease) bool { return l.Place == b.place }) {
			s.account(id)
		}
	}

	for _, id := range sortedAccounts(s.accounts) {
		a, o := s.accounts[id], p.owners[id]
		if m := a.Look(o, b.place); m != (limit.ToPlace{}) && m.Permits >= 0 && m.Tokens >= 0 {
			b.Gate.Receive(now, id, m)
		}
	}

	b.Post()
	for _, id := range sortedAccounts(s.accounts) {
		a := s.accounts[id]
		if want, tokens, over := a.Beliefs(); (want > 0 || tokens > 0 || over > 0) && !s.isPending(id) {
			b.Gate.CompareWants(now, id, gate.Wants{Permits: want, Tokens: tokens, Over: over})
		}
		if a.IsZero() {
			delete(s.accounts, id)
		}
	}

	s.rewake(now, p)
}

// isPending reports whether a message about a limit is queued or in flight.
func (s *sheet) isPending(id rule.Resource) bool {
	about := func(m gate.Message) bool { return m.Resource == id }
	return slices.ContainsFunc(s.queue, about) || slices.ContainsFunc(s.flight, about)
}

// rewake computes when this place gets tokens that it waits for.
func (s *sheet) rewake(now model.Time, p *page) {
	s.wake = 0
	for id, a := range s.accounts {
		if o := p.owners[id]; o != nil && a.WantsTokens() {
			if t := o.Next(); t != 0 && (s.wake == 0 || t < s.wake) {
				s.wake = max(t, now+1)
			}
		}
	}
}

// takeOver makes the gate the owner of everything on a page.
func (b *Book) takeOver(now model.Time, number int, p *page) {
	s := &b.sheets[number]
	s.sole, s.accounts, s.wake = true, nil, 0
	b.Post()
	told := s.queue
	s.queue = nil
	b.Gate.Own(now, p.owners, told, func(n limit.Numbers) *limit.Owner { return p.newOwner(now, n) })
}

// handOver ends the gate's ownership of a page. The next write puts the owners back on the page.
func (b *Book) handOver(now model.Time, number int) {
	s := &b.sheets[number]
	owners := b.Gate.Disown(now, func(id rule.Resource) bool { return PageOf(id) == number })
	s.sole, s.due = false, true
	s.export = &page{owners: owners}
	s.accounts = map[rule.Resource]*limit.Account{}
	for id, o := range owners {
		a := &limit.Account{}
		if a.Look(o, b.place); !a.IsZero() {
			s.accounts[id] = a
		}
	}
}

// copy returns a copy of p, a page that only this node knew. The copy can replace the stored page
// (instead), and keeps the messages that other nodes have written there. The write may be repeated,
// so copy does not change p.
func (p *page) copy(instead *page) (*page, error) {
	body, err := (&page{owners: p.owners, messages: instead.messages, seen: instead.seen, emptied: instead.emptied}).encode()
	if err != nil {
		return nil, err
	}
	return decode(body)
}

func (s *sheet) account(id rule.Resource) *limit.Account {
	if s.accounts == nil {
		s.accounts = map[rule.Resource]*limit.Account{}
	}
	a := s.accounts[id]
	if a == nil {
		a = &limit.Account{}
		s.accounts[id] = a
	}
	return a
}
