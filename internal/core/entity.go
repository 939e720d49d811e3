package core

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Entity is an entity or a service as its owner keeps it: its row, and what waits for it.
//
// Calls are made in the order in which they came, some of them together; the request of a lock
// among them is a barrier: it is granted when everything before it has been made, and nothing
// behind it is made before the section that asked for it ends, but what that section calls itself.
// Views change nothing and wait for nobody.
type Entity struct {
	// Row is the entity with everything that has been decided; what is durable may be older.
	Row model.Entity
	// Floor is a fencing token that is as high as any that was given out for the entity before its
	// row was gone.
	Floor int64

	mail  []*Item // in order
	bytes int     // of mail
	loose int     // those of them that are only in memory
	last  int64   // position of the last item that was stored
	busy  int     // hand-overs whose results have not come, but those of views
}

// Item is something that waits for an entity: a call, or the request of a lock.
type Item struct {
	// Seq is its position in the stored mailbox; zero when it is only in memory.
	Seq     int64
	At      model.Time
	Message *model.Message
	// View tells that the call changes nothing.
	View bool
	// Tag is for whoever handed it in.
	Tag any

	made bool // it has been handed to a worker
	held bool // it is not to be begun, see Arrival
	lost bool // it is not to be made, see Return

	loose bool // it counts as one that is only in memory

	suspect  bool // it is not to be made before it is marked, see Suspect
	behind   bool // a suspect only if it is a view: its operation cannot have been running
	pardoned bool // its last mark is to be taken back, see Pardon
	noting   bool // that is on its way into the store
	alone    bool // it is handed over by itself
}

// Begun reports whether a worker has been given the item and has not reported.
func (it *Item) Begun() bool { return it.made }

// Once reports whether the item must not be made again when it is not known what came of it: its
// caller is told instead.
func (it *Item) Once() bool { return it.Message.Brief && !it.View }

// Arrival is how a message came to an entity.
type Arrival struct {
	// Stored has it survive a crash: whoever sent it has been told, or will be, that it cannot be
	// lost.
	Stored bool
	// Held has nobody begin it before Begin says that its row is there. Whoever finds the row of a
	// call that is made at most once, and does not know of it, knows that somebody may have made
	// it.
	Held bool
	View bool
	Tag  any
	// Room is how many calls may wait. A call that runs is not counted.
	Room int
	// Stalled says why no further call may wait, although there is room; empty when it may.
	Stalled string
}

// MailboxBytes bounds what waits for one entity.
const MailboxBytes = 16 << 20

// EntityChange is what a decision does to the row of an entity.
type EntityChange struct {
	Entity model.Entity
	Prev   int64
	Gone   bool
}

// NewEntity is an entity as it is stored: row is nil when it has none.
func NewEntity(a model.Address, row *model.Entity, mailbox []model.MailboxItem) *Entity {
	n := &Entity{Row: model.Entity{Address: a}}
	if row != nil {
		n.Row = *row
	}
	for i := range mailbox {
		it := &mailbox[i]
		n.last = it.Seq
		if it.Damaged != nil {
			continue // the lane moves it aside; its place stays taken until then
		}
		n.add(&Item{Seq: it.Seq, At: it.At, Message: &it.Message, lost: it.Message.Brief})
	}
	return n
}

func (n *Entity) add(it *Item) {
	n.mail = append(n.mail, it)
	n.bytes += it.Message.Size()
	if it.Seq == 0 {
		it.loose = true
		n.loose += it.Message.Size()
	}
}

// fasten notes that an item is not only in memory any more.
func (n *Entity) fasten(it *Item) {
	if it.loose {
		it.loose = false
		n.loose -= it.Message.Size()
	}
}

// Waiting is the number of calls and requests of locks that have not been dealt with.
func (n *Entity) Waiting() int { return len(n.mail) }

// Mail are the items that have not been dealt with, in order. The caller must not change them.
func (n *Entity) Mail() []*Item { return n.mail }

// Line is how many calls and requests of locks wait for their turn, and since when the first of
// them does. Calls of a service that are being made have had their turn, because others do not wait
// for them. Views wait for nobody.
func (n *Entity) Line() (waiting int, since model.Time) {
	stateless := n.Row.Address.Stateless()
	for _, it := range n.mail {
		if it.View || stateless && it.made {
			continue
		}
		if waiting++; waiting == 1 {
			since = it.At
		}
	}
	return waiting, since
}

// Loose is roughly what those items of the mailbox take that are only in memory.
func (n *Entity) Loose() int { return n.loose }

// Idle reports whether nothing waits.
func (n *Entity) Idle() bool { return len(n.mail) == 0 && n.busy == 0 }

// Size is roughly the memory that the entity takes.
func (n *Entity) Size() int { return n.Row.Size() + n.bytes }

// holds reports whether a section has the entity locked.
func (n *Entity) holds(section model.Link) bool { return n.Row.Locked() && n.Row.Holder == section }

// sectionOf is the one that a call is made in.
func sectionOf(m *model.Message) model.Link {
	return model.Link{Address: m.From.Address, Run: m.From.Run, ID: m.Section}
}

// Deliver takes a message to an entity.
func (n *Entity) Deliver(m *model.Message, a Arrival, now model.Time) Decision {
	var d Decision
	before := n.Row
	switch m.Kind {
	case model.MessageCall:
		n.accept(&d, m, a, now)
	case model.MessageLock:
		n.request(&d, m, a, now)
	case model.MessageRelease:
		n.release(&d, m.From)
	case model.MessageUnlock:
		n.unlock(&d, m)
	case model.MessageMailbox:
		n.manage(&d, m)
	case model.MessageNothing:
	default:
		d.refuse(fault.Invalid, fmt.Sprintf("%s is an entity: it takes no %s", m.To, m.Kind))
		d.bounce(m, model.Outcome{Status: model.Failed, Failure: d.Answer.Failure})
	}

	n.grant(&d, now)
	n.change(&d, &before, now)
	return d
}

// accept has a call wait for its turn.
func (n *Entity) accept(d *Decision, m *model.Message, a Arrival, now model.Time) {
	switch {
	case n.asked(m) != nil:
		it := n.asked(m)
		if f := Misused(m, it.Message.Use()); f != nil {
			d.misuse(m, f)
			return
		}
		d.Pending = !m.OneWay // the same request again waits for the same answer
		if a.Stored && it.Seq == 0 {
			// it was only in memory; whoever sends it now lets go of the row that he has of it
			n.store(d, it)
		}
		return
	case m.Section != "" && !n.holds(sectionOf(m)):
		d.refuse(fault.Conflict, fmt.Sprintf("the section that calls %s of %s does not hold its lock any more", m.Name, m.To))
	case m.Section != "":
		// the holder has one call at a time, and those who fill the mailbox wait for its end
	case n.full(m, a):
		n.refuseFull(d, m, a)
	case a.Stalled != "":
		d.refuse(fault.Exhausted, a.Stalled)
	}

	if d.Answer.Failure != nil {
		d.acknowledge(m)
		return
	}

	it := &Item{At: now, Message: m, View: a.View, Tag: a.Tag, held: a.Held}
	if a.Stored {
		n.store(d, it)
	}
	n.add(it)
	d.Pending = true

	if m.OneWay {
		it.Tag = nil // is answered now
		d.Pending = false
		d.acknowledge(m)
	}
}

// full reports whether there is no room for another message. What runs takes no room.
func (n *Entity) full(m *model.Message, a Arrival) bool {
	if len(n.mail) < a.Room && n.bytes+m.Size() <= MailboxBytes {
		return false
	}
	waiting, size := n.queued()

	return waiting >= a.Room || size+m.Size() > MailboxBytes && waiting > 0
}

// queued is how many calls and requests of locks wait, and how many bytes they have. Of a hand-over
// one call runs, and the others wait for it. Views run beside everything else. A call that waits
// for its own row runs next.
func (n *Entity) queued() (waiting, size int) {
	running, idle := n.busy, n.busy == 0
	for _, it := range n.mail {
		switch {
		case it.made && it.View:
		case it.made && running > 0:
			running--
		case it.held && idle:
			idle = false
		default:
			waiting++
			size += it.Message.Size()
		}
	}

	return waiting, size
}

func (n *Entity) refuseFull(d *Decision, m *model.Message, a Arrival) {
	waiting, size := n.queued()
	d.refuse(fault.Exhausted, fmt.Sprintf("%d calls and requests of locks of %d bytes wait for %s: at most %d calls (MailboxSize) and %d bytes may wait",
		waiting, size, m.To, a.Room, MailboxBytes))
}

// asked finds the call of a request, or the very same message, which is delivered again when what
// it led to could not be stored.
func (n *Entity) asked(m *model.Message) *Item {
	return n.find(func(it *Item) bool {
		return it.Message == m || m.RequestID != "" && it.Message.RequestID == m.RequestID
	})
}

func (n *Entity) find(is func(*Item) bool) *Item {
	if i := slices.IndexFunc(n.mail, is); i >= 0 {
		return n.mail[i]
	}
	return nil
}

// store gives an item a row.
func (n *Entity) store(d *Decision, it *Item) {
	n.last++
	it.Seq = n.last
	n.fasten(it)
	d.Mailbox = append(d.Mailbox, model.MailboxItem{Seq: it.Seq, At: it.At, Message: *it.Message})
}

// request has a section wait for the lock. One that asks again is answered, or waits, as it did
// before.
func (n *Entity) request(d *Decision, m *model.Message, a Arrival, now model.Time) {
	switch {
	case n.Row.Address.Stateless():
		d.refuse(fault.Invalid, fmt.Sprintf("%s is a service: it cannot be locked", m.To))
		d.acknowledge(m)
	case n.holds(m.From):
		d.Messages = append(d.Messages, n.granted(m.From))
	case n.waits(m.From) >= 0:
	case n.full(m, a):
		n.refuseFull(d, m, a)
		d.acknowledge(m)
	default:
		it := &Item{At: now, Message: m}
		n.store(d, it)
		n.add(it)
	}
}

// waits finds the request of a section.
func (n *Entity) waits(section model.Link) int {
	return slices.IndexFunc(n.mail, func(it *Item) bool { return it.Message.Kind == model.MessageLock && it.Message.From == section })
}

// release ends a section here, whether it holds the lock or waits for it.
func (n *Entity) release(d *Decision, section model.Link) {
	if i := n.waits(section); i >= 0 {
		n.remove(d, n.mail[i])
	}
	if n.holds(section) {
		n.free(d)
	}
}

// free takes the lock from its holder. What that has called and has not been made is refused, also
// if a worker has begun it: what comes of that finds its calls gone and changes nothing. It must
// not be made later, when others hold the lock.
func (n *Entity) free(d *Decision) {
	holder, begun := n.Row.Holder, false
	for _, it := range slices.Clone(n.mail) {
		if m := it.Message; m.Section != "" && sectionOf(m) == holder {
			begun = begun || it.made && !it.View
			n.remove(d, it)
			d.refuseCall(m, fault.Conflict, fmt.Sprintf("the section that called %s of %s has ended", m.Name, m.To))
		}
	}
	if begun {
		n.busy-- // while a section holds the entity, only its calls are handed over
	}
	n.Row.Holder, n.Row.Held = model.Link{}, 0
}

// unlock frees the entity on behalf of an operator.
func (n *Entity) unlock(d *Decision, m *model.Message) {
	switch {
	case !n.Row.Locked():
		d.refuse(fault.NotFound, fmt.Sprintf("%s is not locked", m.To))
	case m.Epoch != 0 && m.Epoch != n.Row.Epoch:
		d.refuse(fault.Conflict, fmt.Sprintf("%s is locked by another section by now: its epoch is %d", m.To, n.Row.Epoch))
	default:
		n.free(d)
	}
}

// refuseCall answers a call that is not made.
func (d *Decision) refuseCall(m *model.Message, k fault.Kind, text string) {
	d.answerCall(m, model.Answer{Failure: &model.Failure{Kind: k.String(), Message: text}})
}

// answerCall tells whoever waits for a call what came of it.
func (d *Decision) answerCall(m *model.Message, a model.Answer) {
	if m.OneWay {
		return
	}
	if m.From.ID != "" {
		d.Messages = append(d.Messages, answerMessage(m.From, a))
	}
	if m.RequestID != "" {
		d.Replies = append(d.Replies, Reply{RequestID: m.RequestID, Answer: a, For: m.Use()})
	}
}

// remove takes an item out of the mailbox. One that was stored by this very decision leaves no
// trace.
func (n *Entity) remove(d *Decision, it *Item) {
	i := slices.Index(n.mail, it)
	if i < 0 {
		return
	}
	n.mail = slices.Delete(n.mail, i, i+1)
	n.bytes -= it.Message.Size()
	n.fasten(it)
	if it.Seq == 0 {
		return
	}
	if j := slices.IndexFunc(d.Mailbox, func(m model.MailboxItem) bool { return m.Seq == it.Seq }); j >= 0 {
		d.Mailbox = slices.Delete(d.Mailbox, j, j+1)
		return
	}
	d.Taken = append(d.Taken, it.Seq)
}

// Begin lets a call be made whose row is there.
func (n *Entity) Begin(m *model.Message) {
	if it := n.asked(m); it != nil {
		it.held = false
	}
}

// Unsettled reports whether there may be something to do for Settle.
func (n *Entity) Unsettled() bool {
	return n.find(func(it *Item) bool { return it.lost || it.Message.Kind == model.MessageLock && !n.Row.Locked() }) != nil
}

// Settle answers calls that are lost, and gives the lock to the section whose turn it is. Deliver
// and Apply do the latter by themselves; it is for when what stood before it is gone without them:
// calls that were only in memory, after a crash or by Forget, or that have turned out to be views.
func (n *Entity) Settle(now model.Time) Decision {
	var d Decision
	before := n.Row
	for _, it := range slices.Clone(n.mail) {
		if it.lost {
			n.remove(&d, it)
			d.refuseCall(it.Message, fault.Unavailable, Interrupted)
		}
	}
	n.grant(&d, now)
	n.change(&d, &before, now)
	return d
}

// grant gives the lock to the section whose turn it is.
func (n *Entity) grant(d *Decision, now model.Time) {
	if n.Row.Locked() || n.busy > 0 {
		return
	}
	i := slices.IndexFunc(n.mail, func(it *Item) bool { return !it.View })
	if i < 0 || n.mail[i].Message.Kind != model.MessageLock {
		return
	}
	it := n.mail[i]
	n.remove(d, it)
	d.Granted = it.At
	n.Row.Holder, n.Row.Held = it.Message.From, now
	// by the clock, so that it seldom falls back on the floor
	n.Row.Epoch = max(n.Row.Epoch+1, n.Floor+1, int64(now))
	d.Messages = append(d.Messages, n.granted(it.Message.From))
}

func (n *Entity) granted(section model.Link) model.Message {
	return model.Message{
		Kind: model.MessageGrant, To: section.Address, ToRun: section.Run, ID: section.ID, From: model.Link{Address: n.Row.Address}, Epoch: n.Row.Epoch,
	}
}

// change adds what has become of the row to the decision.
func (n *Entity) change(d *Decision, before *model.Entity, now model.Time) {
	r := &n.Row
	if r.Exists == before.Exists && r.Holder == before.Holder && r.Epoch == before.Epoch && r.State.Encoding == before.State.Encoding && sameBytes(r.State.Data, before.State.Data) {
		return
	}
	if r.Empty() && before.Version == 0 {
		return
	}
	r.Version, r.Changed = before.Version+1, max(now, before.Changed)
	d.Entity = &EntityChange{Entity: *r, Prev: before.Version, Gone: r.Empty()}
	if r.Empty() {
		*r = model.Entity{Address: r.Address, Epoch: r.Epoch}
	}
}

// sameBytes reports whether two slices are the same memory: states are never changed in place.
func sameBytes(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Next are the calls that may be made now, at most so many and about so many bytes, as one
// hand-over: they are made one after the other on the state of the row. Whoever takes them reports
// with Apply, or gives them back with Return.
func (n *Entity) Next(most, maxBytes int) []*Item {
	if n.busy > 0 && !n.Row.Address.Stateless() {
		return nil
	}
	var items []*Item

	size := 0
	for _, it := range n.mail {
		m := it.Message
		switch {
		case it.made || it.View || it.held || it.lost:
			continue
		case LockedOut(&n.Row, m):
			continue
		case m.Kind == model.MessageLock:
			return n.hand(items) // the barrier
		case it.accused(), it.alone && len(items) > 0:
			return n.hand(items)
		case it.alone:
			return n.hand(append(items, it))
		}

		if size += m.Size(); len(items) == most || len(items) > 0 && size > maxBytes {
			break
		}
		items = append(items, it)
	}

	return n.hand(items)
}

func (n *Entity) hand(items []*Item) []*Item {
	if len(items) == 0 {
		return nil
	}
	for _, it := range items {
		it.made = true
	}
	n.busy++
	return items
}

// Views are the views that nobody has begun, as far as they still are views for whoever is to make
// them; others wait for their turn. They are made on what is durable, beside everything else.
func (n *Entity) Views(view func(name string) bool) (items []*Item) {
	for _, it := range n.mail {
		switch {
		case !it.View || it.made || it.accused():
		case view(it.Message.Name):
			it.made = true
			items = append(items, it)
		default:
			it.View = false
		}
	}
	return items
}

// Interrupted is what the caller of a call that is made at most once hears when it is lost.
const Interrupted = "the call was interrupted: it may have been made or not"

// Return takes calls back of which nobody knows whether they were made. Those that are made at most
// once are lost. Settle answers those that have a row; those that are only in memory are gone, and
// whoever waits for them has to be told.
func (n *Entity) Return(items []*Item) (gone []*Item) {
	n.ended(items)
	for _, it := range items {
		switch {
		case !it.Once():
		case it.Seq != 0:
			it.lost = true
		default:
			n.remove(&Decision{}, it)
			gone = append(gone, it)
		}
	}
	return gone
}

// Keep takes calls that are only in memory over from what was known of the entity before it was
// read again. They come behind what is stored.
func (n *Entity) Keep(items []*Item) {
	for _, it := range items {
		it.made = false
		n.add(it)
	}
}

// Forget drops a call that is only in memory and that nobody has begun, because whoever made it
// does not wait any more: the one with the tag, or that of the request, which somebody else may
// have made before. It reports whether there was one.
func (n *Entity) Forget(tag any, request string) bool {
	it := n.find(func(it *Item) bool {
		return it.Seq == 0 && !it.made && (it.Tag == tag || request != "" && it.Message.RequestID == request)
	})
	if it == nil {
		return false
	}
	n.remove(&Decision{}, it)
	return true
}

// Mark finds out anew which of the calls are views.
func (n *Entity) Mark(view func(name string) bool) {
	for _, it := range n.mail {
		if !it.made && it.Message.Kind == model.MessageCall && it.Message.Section == "" {
			it.View = view(it.Message.Name)
		}
	}
}

// ended notes that a hand-over is over, if the entity knows of it.
func (n *Entity) ended(items []*Item) {
	known := false
	for _, it := range items {
		if it.made && slices.Contains(n.mail, it) {
			it.made, known = false, true
		}
	}
	if known && !items[0].View {
		n.busy--
	}
}

// Apply takes what a worker made of the items of a hand-over. version is that of the row when they
// were handed over. It reports false, and changes nothing, when that is not what the calls would be
// made on now. Calls that did what they may not have failed in the report afterwards.
func (n *Entity) Apply(items []*Item, r *model.Operated, version int64, now model.Time) (Decision, bool) {
	var d Decision
	before := n.Row
	n.ended(items)
	plain := !items[0].View && !n.Row.Address.Stateless()
	if plain && (n.Row.Version != version || n.Row.Locked() && !n.ofHolder(items)) {
		return d, false
	}

	n.confine(r)
	made := items[:min(len(r.Results), len(items))]
	for _, it := range made {
		if it.Seq != 0 && n.Current(it) == nil {
			return d, false // somebody else has dealt with it
		}
	}

	for i, it := range made {
		res := &r.Results[i]
		n.remove(&d, n.Current(it))
		if res.Failure == nil {
			for j := range res.Messages {
				d.Messages = append(d.Messages, *res.Messages[j].Bounded())
			}
		}
		d.answerCall(it.Message, model.Answer{Output: res.Output, Failure: res.Failure.Bounded()})
	}

	if r.Changed && plain {
		n.Row.State, n.Row.Exists = r.State, r.Exists
		switch {
		case !r.Exists:
			n.Row.State, n.Row.Created = model.Payload{}, 0
		case !before.Exists:
			n.Row.Created = now
		}
	}

	n.grant(&d, now)
	n.change(&d, &before, now)
	return d, true
}

// ofHolder reports whether all calls are those of the section that has the lock. They may not be
// although the version is the one that they were made on: what made that version was undone, and
// the same version was made again in another order, with a lock.
func (n *Entity) ofHolder(items []*Item) bool {
	return !slices.ContainsFunc(items, func(it *Item) bool { return it.Message.Section == "" || !n.holds(sectionOf(it.Message)) })
}

// Current is an item as the entity knows it now: it may have been delivered again, and have another
// position, or have been read again. It is nil when the entity does not know it.
func (n *Entity) Current(it *Item) *Item {
	m := it.Message
	if o := n.asked(m); o != nil || it.Seq == 0 {
		return o
	}
	return n.find(func(o *Item) bool {
		x := o.Message
		return o.Seq == it.Seq && x.Kind == m.Kind && x.From == m.From && x.RequestID == m.RequestID && x.Name == m.Name && x.Input.Equal(m.Input)
	})
}
