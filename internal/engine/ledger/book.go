package ledger

import (
	"slices"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/model"
)

// Book is the side of a node: what it has to tell the owners on the pages, and what it knows of its
// leases.
//
// The engine has it look at every version of a page that it comes to know (Seen), and writes what
// it composes (Compose, then Seen), if the page has not been changed in between. It asks for pages
// that are Due after every call, and at Wake.
type Book struct {
	// Gate is the gate whose limits are on the pages. After every call to it, Post.
	Gate *gate.Gate

	place  limit.Place
	rules  *rule.Set
	alone  bool
	leaves bool
	clean  map[limit.Place]bool
	sheets [Pages]sheet
}

// sheet is a page as the node knows it.
type sheet struct {
	places []limit.Place // that are named on it
	body   []byte
	// queue is what is to be told, flight what is in a write that may have landed, under the number
	// seq.
	queue, flight []gate.Message
	seq           int64
	posted        int64 // messages so far
	accounts      map[rule.Resource]*limit.Account
	sole          bool       // the gate is the owner
	export        *page      // what the gate was the owner of, which is to be written
	wake          model.Time // when tokens accrue that this place waits for; zero for never
	due           bool       // there may be something to write
}

// New is the book of a place that has nothing.
func New(place limit.Place) *Book {
	b := &Book{place: place}
	b.Gate = gate.New(place, func(id rule.Resource) bool { return b.sheets[PageOf(id)].sole })
	return b
}

// Post takes over what the gate has to tell. It reports whether there was anything.
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

// Mark is how much has been posted so far.
func (b *Book) Mark() (m Mark) {
	for i := range b.sheets {
		m[i] = b.sheets[i].posted
	}
	return m
}

// Mark is a moment of a book.
type Mark [Pages]int64

// Landed reports whether everything that was posted before the mark stands on pages that are
// stored, or on pages that only this node knows.
func (b *Book) Landed(m *Mark) bool {
	for i := range b.sheets {
		if s := &b.sheets[i]; s.posted-int64(len(s.queue)+len(s.flight)) < m[i] {
			return false
		}
	}
	return true
}

// SetRules has pages go by other numbers. The gate is told by whoever tells the book.
func (b *Book) SetRules(rules *rule.Set) {
	b.rules = rules
	for i := range b.sheets {
		b.sheets[i].due = b.sheets[i].due || b.sheets[i].body != nil
	}
}

// SetAlone tells whether there is any other node.
func (b *Book) SetAlone(alone bool) {
	if alone != b.alone {
		b.alone = alone
		for i := range b.sheets {
			b.sheets[i].due = b.sheets[i].due || alone && len(b.sheets[i].accounts) > 0
		}
	}
}

// Clean tells which places will never speak again, and that every claim that they have made is
// counted by others, on pages that are stored. What they have is free.
func (b *Book) Clean(places map[limit.Place]bool) {
	b.clean = places
	for i := range b.sheets {
		s := &b.sheets[i]
		s.due = s.due || slices.ContainsFunc(s.places, func(l limit.Place) bool { return places[l] })
	}
}

// Places are all that the pages name, but for this one.
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

// Due are pages for which something may have to be written now.
func (b *Book) Due(now model.Time) (pages []int) {
	for i := range b.sheets {
		if s := &b.sheets[i]; s.due || s.wake != 0 && s.wake <= now {
			pages = append(pages, i)
		}
	}
	return pages
}

// Wake is when a page is due by itself; zero for never.
func (b *Book) Wake() (wake model.Time) {
	for i := range b.sheets {
		if t := b.sheets[i].wake; t != 0 && (wake == 0 || t < wake) {
			wake = t
		}
	}
	return wake
}

// Leave gives back what nobody needs, and has pages written that only this node knows: it is about
// to end in order.
func (b *Book) Leave(now model.Time) {
	b.leaves = true
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

// Compose is what is to be written instead of the page that was seen last; needed is false when it
// can stay as it is.
func (b *Book) Compose(now model.Time, number int) (body []byte, needed bool, err error) {
	s := &b.sheets[number]
	s.wake = 0
	p, err := decode(s.body)
	if err != nil {
		return nil, false, err
	}
	defer func() { s.due = needed }() // also when it is written: that may be in vain
	for _, place := range sortedPlaces(b.clean) {
		needed = p.lapse(now, place) || needed
	}

	switch {
	case p.sole == b.place && s.sole:
	case p.sole != 0 && p.sole != b.place:
		needed = b.write(s, p) || needed
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

// write puts what is to be told on a page as letters, once.
func (b *Book) write(s *sheet, p *page) bool {
	if len(s.flight) == 0 && len(s.queue) > 0 {
		s.seq++
		s.flight, s.queue = s.queue, nil
	}
	if len(s.flight) == 0 || p.seen[b.place] >= s.seq {
		return false
	}
	for i := range s.flight {
		p.letters = append(p.letters, letter{s.flight[i].Resource, b.place, s.flight[i].ToOwner})
	}
	p.seen[b.place] = s.seq
	return true
}

// apply does everything on a page that is due.
func (b *Book) apply(now model.Time, s *sheet, p *page) (changed bool) {
	changed = b.write(s, p)
	heard := map[rule.Resource]bool{}
	// all of them before anybody is served: who tells last may hold what the first one wants
	for _, l := range p.letters {
		n, _ := b.rules.Numbers(l.id)
		p.owner(now, l.id, n).Note(now, l.place, l.told)
		heard[l.id] = true
	}

	p.letters = nil
	mine := false
	for _, id := range p.sorted() {
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
	case b.leaves && !mine && len(s.flight) == 0 && p.seen[b.place] > 0:
		delete(p.seen, b.place)
		changed = true
	case b.alone && !b.leaves && s.export == nil && (changed || mine) && !p.shared(b.place):
		p.sole, changed = b.place, true
	}

	return changed
}

// Seen has the book look at a page that was read, or written by Compose. What is known already
// changes nothing.
func (b *Book) Seen(now model.Time, number int, body []byte) error {
	s := &b.sheets[number]
	p, err := decode(body)
	if err != nil {
		return err
	}
	s.body, s.wake, s.places = body, 0, s.places[:0]

	p.places(func(l limit.Place) {
		s.places = append(s.places, l)
		s.due = s.due || b.clean[l]
	})

	if len(s.flight) > 0 && p.seen[b.place] >= s.seq {
		for i := range s.flight {
			s.account(s.flight[i].Resource).Told(s.flight[i].ToOwner)
		}
		s.flight = nil
	}

	switch {
	case s.sole && p.sole == b.place:
		if len(p.letters) > 0 {
			b.handOver(now, number)
		}
		return nil
	case s.sole: // somebody takes this node for dead, and it will hear that it is
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
		case b.leaves: // it was taken while this node had not begun to leave
			b.handOver(now, number)
			b.Gate.Rest(now)
		case len(p.letters) > 0: // others have written before this node has heard that it was taken
			b.handOver(now, number)
		}
	}

	s.due = s.due || len(s.queue)+len(s.flight) > 0
	b.Post()
	return nil
}

// look finds what this place was granted and what is wanted back.
func (b *Book) look(now model.Time, s *sheet, p *page) {
	for _, id := range p.sorted() {
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
		if want, tokens, over := a.Believed(); (want > 0 || tokens > 0 || over > 0) && !s.tells(id) {
			b.Gate.Believed(now, id, want, tokens, over)
		}
		if a.IsZero() {
			delete(s.accounts, id)
		}
	}

	s.rewake(now, p)
}

// tells reports whether something is to be told about a limit, or is on its way.
func (s *sheet) tells(id rule.Resource) bool {
	about := func(m gate.Message) bool { return m.Resource == id }
	return slices.ContainsFunc(s.queue, about) || slices.ContainsFunc(s.flight, about)
}

// rewake finds when tokens accrue that this place waits for.
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
	b.Gate.Own(now, p.owners, told, func(n limit.Numbers) *limit.Owner { return p.fresh(now, n) })
}

// handOver has the gate be the owner no more: the page is written with what it knows.
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

// copy is the page that is to take the place of one that only this node knew. What it hands over
// may be written more than once, so it is left as it is.
func (p *page) copy(instead *page) (*page, error) {
	body, err := (&page{owners: p.owners, letters: instead.letters, seen: instead.seen, emptied: instead.emptied}).encode()
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
