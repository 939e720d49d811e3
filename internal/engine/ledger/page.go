package ledger

import (
	"maps"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Pages is the number of pages. Nodes write all limits of a page together.
const Pages = 64

// PageOf returns the page of a limit.
func PageOf(id rule.Resource) int { return int(id.Address().Shard(Pages)) }

// version is the version of the stored form. A build refuses a version that it does not know, so
// that it cannot drop fields it does not understand.
const version = 1

// page is a decoded page.
type page struct {
	// sole is the place that keeps the whole page in its memory; zero if there is none. If there is
	// such a place, the owners here are out of date. messages are messages that other places left
	// for the owners. The owners receive them when they are back on the page.
	sole     limit.Place
	messages []message
	// seen has, for each place, the number of its last write whose messages are on the page or have
	// been applied to the owners.
	seen   map[limit.Place]int64
	owners map[rule.Resource]*limit.Owner
	// emptied is when a place that kept the whole page in its memory died. It is not known how many
	// tokens that place had spent.
	emptied model.Time
}

// message is a message of a place to the owner of a limit.
type message struct {
	id    rule.Resource
	place limit.Place
	told  limit.ToOwner
}

// storedPage is the row of a page.
type storedPage struct {
	Version  int                   `cbor:"1,keyasint"`
	Sole     limit.Place           `cbor:"2,keyasint,omitempty"`
	Messages []storedMessage       `cbor:"3,keyasint,omitempty"`
	Seen     map[limit.Place]int64 `cbor:"4,keyasint,omitempty"`
	Owners   []storedOwner         `cbor:"5,keyasint,omitempty"`
	Emptied  model.Time            `cbor:"6,keyasint,omitempty"`
}

// storedName is the name of a limit: name, selector, tenant and key.
type storedName [4]string

func nameOf(id rule.Resource) storedName { return storedName{id.Name, id.Selector, id.Tenant, id.Key} }

func (n storedName) id() rule.Resource {
	return rule.Resource{Name: n[0], Selector: n[1], Tenant: n[2], Key: n[3]}
}

type storedOwner struct {
	Name storedName `cbor:"1,keyasint"`
	Data []byte     `cbor:"2,keyasint"`
}

type storedMessage struct {
	Name  storedName    `cbor:"1,keyasint"`
	Place limit.Place   `cbor:"2,keyasint"`
	Told  limit.ToOwner `cbor:"3,keyasint"`
}

// decode reads a page. A nil body is an empty page.
func decode(body []byte) (*page, error) {
	p := &page{seen: map[limit.Place]int64{}, owners: map[rule.Resource]*limit.Owner{}}
	if body == nil {
		return p, nil
	}
	var s storedPage
	if err := cbor.Unmarshal(body, &s); err != nil {
		return nil, fault.New(fault.Corrupt, "page of the limits: %w", err)
	}

	if s.Version != version {
		return nil, fault.New(fault.Corrupt, "page of the limits: stored by version %d, this build knows version %d", s.Version, version)
	}
	p.sole, p.emptied = s.Sole, s.Emptied
	maps.Copy(p.seen, s.Seen)

	for _, o := range s.Owners {
		owner, err := limit.DecodeOwner(o.Data)
		if err != nil {
			return nil, fault.New(fault.Corrupt, "page of the limits, %s: %w", o.Name.id(), err)
		}
		p.owners[o.Name.id()] = owner
	}

	for _, l := range s.Messages {
		p.messages = append(p.messages, message{l.Name.id(), l.Place, l.Told})
	}
	return p, nil
}

func (p *page) encode() ([]byte, error) {
	s := storedPage{Version: version, Sole: p.sole, Seen: p.seen, Emptied: p.emptied}
	for _, l := range p.messages {
		s.Messages = append(s.Messages, storedMessage{nameOf(l.id), l.place, l.told})
	}
	for _, id := range p.sortedLimits() {
		data, err := p.owners[id].Encode()
		if err != nil {
			return nil, err
		}
		s.Owners = append(s.Owners, storedOwner{nameOf(id), data})
	}
	return cbor.Marshal(s)
}

func (p *page) sortedLimits() []rule.Resource {
	return slices.SortedFunc(maps.Keys(p.owners), rule.Resource.Compare)
}

// owner returns the owner of a limit and creates it if necessary.
func (p *page) owner(now model.Time, id rule.Resource, n limit.Numbers) *limit.Owner {
	o := p.owners[id]
	if o == nil {
		o = p.newOwner(now, n)
		p.owners[id] = o
	}
	return o
}

// newOwner returns a new owner without leases. After a lost page it starts without tokens.
func (p *page) newOwner(now model.Time, n limit.Numbers) *limit.Owner {
	o := limit.NewOwner(n, now)
	if p.emptied > 0 {
		o.Empty(p.emptied)
	}
	return o
}

// places visits all places that the page names, some more than once.
func (p *page) places(visit func(limit.Place)) {
	if p.sole != 0 {
		visit(p.sole)
	}
	for i := range p.messages {
		visit(p.messages[i].place)
	}
	for s := range p.seen {
		visit(s)
	}
	for _, o := range p.owners {
		for _, l := range o.Leases() {
			visit(l.Place)
		}
	}
}

// lapse removes everything that a place has on the page.
func (p *page) lapse(now model.Time, place limit.Place) (changed bool) {
	if _, has := p.seen[place]; has {
		delete(p.seen, place)
		changed = true
	}

	if n := len(p.messages); n > 0 {
		p.messages = slices.DeleteFunc(p.messages, func(l message) bool { return l.place == place })
		changed = changed || len(p.messages) < n
	}

	if p.sole == place {
		p.sole, p.emptied = 0, now
		clear(p.owners)
		return true
	}

	for _, id := range p.sortedLimits() {
		o := p.owners[id]
		if slices.ContainsFunc(o.Leases(), func(l limit.Lease) bool { return l.Place == place }) {
			o.DropPlace(now, place)
			changed = true
		}
	}

	return changed
}

// isShared reports whether another place has or wants a permit of this page.
func (p *page) isShared(place limit.Place) bool {
	other := false
	for _, o := range p.owners {
		other = other || slices.ContainsFunc(o.Leases(), func(l limit.Lease) bool { return l.Place != place })
	}
	return other
}

// LimitEntry is the state of a limit on its page, for people to read.
type LimitEntry struct {
	Resource rule.Resource
	Numbers  limit.Numbers
	Leases   []limit.Lease
}

// Read lists the limits on a page. If a place keeps the whole page in its memory, Read returns that
// place and no list.
func Read(body []byte) (list []LimitEntry, sole limit.Place, err error) {
	p, err := decode(body)
	if err != nil || p.sole != 0 {
		if p != nil {
			sole = p.sole
		}
		return nil, sole, err
	}
	for _, id := range p.sortedLimits() {
		o := p.owners[id]
		list = append(list, LimitEntry{id, o.Numbers(), o.Leases()})
	}
	return list, 0, nil
}

func sortedPlaces(set map[limit.Place]bool) (list []limit.Place) {
	for p, in := range set {
		if in {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return list
}

func sortedAccounts(set map[rule.Resource]*limit.Account) []rule.Resource {
	return slices.SortedFunc(maps.Keys(set), rule.Resource.Compare)
}
