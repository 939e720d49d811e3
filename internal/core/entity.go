package core

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Entity is an entity or a service in the memory of its owner: its row and its mailbox.
//
// Workers make the calls in the order in which they arrived. The entity may pass several calls to a
// worker together, which is one hand-over. A lock request is a barrier: the entity grants the lock
// when all calls before the request are done. Until the section that asked for the lock ends,
// workers make only the calls of that section. Views change nothing and do not wait for their turn.
type Entity struct {
	// Row is the entity with everything that has been decided. The store may have an older version.
	Row model.Entity
	// Floor is at least as high as any fencing token that was granted for the entity before its row
	// was removed.
	Floor int64

	mail  []*Item // the mailbox, in order
	index mailIndex
	bytes int   // bytes of mail
	loose int   // bytes of the items that are only in memory
	last  int64 // position of the last item that was stored
	busy  int   // hand-overs without a result yet, not counting views

	views    int  // items that are views
	inside   int  // calls of sections
	suspects bool // an item may be a suspect
}

// Item is a call, or the request of a lock, that waits for an entity.
type Item struct {
	// Seq is the position of the item in the stored mailbox; zero when the item is only in memory.
	Seq     int64
	At      model.Time
	Message *model.Message
	// View says that the call changes nothing.
	View bool
	// Tag is a value of the caller that delivered the item. The core does not interpret it.
	Tag any

	made bool // a worker has it
	held bool // no worker may get it yet, see Arrival
	// early is like held, but it also holds a view, and later calls wait behind the item.
	early bool
	lost  bool // no worker may get it again, see Return

	loose bool // its bytes are in Entity.loose

	suspect  bool // it needs a stored mark before a worker gets it, see Suspect
	behind   bool // not a suspect unless it is a view, see isAccused
	pardoned bool // its last mark must be removed, see Pardon
	noting   bool // its mark is on its way into the store
	alone    bool // a worker gets it without other calls
	wary     bool // no other call that workers may have died of runs at the same time, see Lose
	doomed   bool // no worker gets it again, and CountLosses sets it aside

	hand *HandOver // see Attach
}

// HasBegun reports whether a worker has the item and has not reported its result.
func (it *Item) HasBegun() bool { return it.made }

// Once reports whether the call of the item is made at most once. If its result is unknown, no
// worker makes the call again, and its caller gets a failure instead.
func (it *Item) Once() bool { return it.Message.Brief && !it.View }

// Arrival describes how a message arrived at an entity.
type Arrival struct {
	// Stored gives the item a row, so that it survives a crash. The sender of the message relies on
	// that.
	Stored bool
	// Held keeps the item from workers until Begin says that its row is stored. The row of a call
	// that is made at most once is a warning: an owner that finds it after a crash must assume that
	// a worker may have made the call.
	Held bool
	// Early makes the entity hold the call even if it is a view. Later calls wait behind the held
	// call, unless the held call is a view or a call of a service. The lane sets Early if the
	// commit that sends the call is not durable yet, or if the call may have killed the last owner.
	Early bool
	View  bool
	Tag   any
	// Room is how many calls may wait, and Bytes is how many bytes these calls may have. If Bytes
	// is zero, MailboxBytes applies. A call that runs counts for neither.
	Room, Bytes int
	// Life is how long the entity keeps a state that the message creates. StateVersion is the
	// version of the state's type.
	Life         Life
	StateVersion int
	// Stalled is why the entity accepts no further call although there is room; empty when it
	// accepts calls.
	Stalled string
}

// MailboxBytes bounds the mailbox of one entity whose type has no limit of its own.
const MailboxBytes = 16 << 20

// maxBytes returns how many bytes of calls may wait.
func (a *Arrival) maxBytes() int { return cmp.Or(a.Bytes, MailboxBytes) }

// EntityChange is what a decision does to the row of an entity.
type EntityChange struct {
	Entity model.Entity
	Prev   int64
	Gone   bool
}

// NewEntity returns an entity as the store has it. row is nil when the entity has no row.
func NewEntity(a model.Address, row *model.Entity, mailbox []model.MailboxItem) *Entity {
	n := &Entity{Row: model.Entity{Address: a}}
	if row != nil {
		n.Row = *row
	}
	for i := range mailbox {
		it := &mailbox[i]
		n.last = it.Seq
		if it.Damaged != nil {
			continue // unreadable: the lane moves it aside, and until then its position stays taken
		}
		x := &Item{Seq: it.Seq, At: it.At, Message: &it.Message, lost: it.Message.Brief}
		x.isolate()
		n.add(x)
	}
	return n
}

// add puts an item behind all others.
func (n *Entity) add(it *Item) {
	n.mail = append(n.mail, it)
	n.bytes += it.Message.Size()
	if it.Seq == 0 {
		it.loose = true
		n.loose += it.Message.Size()
	}
	if it.View {
		n.views++
	}
	if it.Message.Section != "" {
		n.inside++
	}
	n.suspects = n.suspects || it.isAccused()
	n.index.add(it)
	n.indexMail()
}

// fasten notes that an item is in the store now, so that its bytes no longer belong to loose.
func (n *Entity) fasten(it *Item) {
	if it.loose {
		it.loose = false
		n.loose -= it.Message.Size()
	}
}

// MailCount returns the number of calls and lock requests in the mailbox.
func (n *Entity) MailCount() int { return len(n.mail) }

// Mail returns the items of the mailbox, in order. The caller must not change them.
func (n *Entity) Mail() []*Item { return n.mail }

// Line returns how many calls and lock requests wait for their turn, and since when the first of
// them waits. Running calls of a service do not count, because other calls do not wait for them.
// Views do not count, because they do not wait.
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

// Loose estimates the bytes of the items that are only in memory.
func (n *Entity) Loose() int { return n.loose }

// Idle reports whether nothing waits or runs.
func (n *Entity) Idle() bool { return len(n.mail) == 0 && n.busy == 0 }

// Size estimates the memory that the entity takes, in bytes.
func (n *Entity) Size() int { return n.Row.Size() + n.bytes }

// isHeldBy reports whether a section has the lock of the entity.
func (n *Entity) isHeldBy(section model.Link) bool { return n.Row.Locked() && n.Row.Holder == section }

// sectionOf returns the section that makes a call.
func sectionOf(m *model.Message) model.Link {
	return model.Link{Address: m.From.Address, Run: m.From.Run, ID: m.Section}
}

// Deliver applies a message to an entity.
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
		if isEdit(m) {
			n.edit(&d, m, &a, now)
		} else {
			n.manage(&d, m)
		}
	case model.MessageNothing:
	default:
		d.refuse(fault.Invalid, fmt.Sprintf("%s is an entity: it takes no %s", m.To, m.Kind))
		d.bounce(m, model.Outcome{Status: model.Failed, Failure: d.Answer.Failure})
	}

	n.expire(now)
	n.grant(&d, now)
	n.change(&d, &before, now)
	n.sayVersion(&d, m)
	return d
}

// accept puts a call into the mailbox, or refuses it.
func (n *Entity) accept(d *Decision, m *model.Message, a Arrival, now model.Time) {
	switch {
	case n.findRequest(m) != nil:
		it := n.findRequest(m)
		if f := MisuseOf(m, it.Message.Use()); f != nil {
			d.misuse(m, f)
			return
		}
		d.Pending = !m.OneWay // the caller that repeats the request waits for the same answer
		if a.Stored && it.Seq == 0 {
			// The call was only in memory. Its sender now drops its own row of the call, so the
			// call needs a row here.
			n.store(d, it)
		}
		return
	case m.Section != "" && !n.isHeldBy(sectionOf(m)):
		d.refuse(fault.Conflict, fmt.Sprintf("the section that calls %s of %s no longer holds its lock", m.Name, m.To))
	case m.Section != "":
		// The section that holds the lock makes one call of the entity at a time. The calls that
		// fill the mailbox wait for the end of that section, so they must not keep out the calls of
		// the section.
	case n.full(m, a):
		n.refuseFull(d, m, a)
	case a.Stalled != "":
		d.refuse(fault.Exhausted, a.Stalled)
	}

	if d.Answer.Failure != nil {
		d.acknowledge(m)
		return
	}

	it := &Item{At: now, Message: m, View: a.View, Tag: a.Tag, held: a.Held, early: a.Early}
	if a.Stored {
		n.store(d, it)
	}
	n.add(it)
	d.Pending = true

	if m.OneWay {
		it.Tag = nil // the caller has its answer now
		d.Pending = false
		d.acknowledge(m)
	}
}

// full reports whether there is no room for another message. Calls that run take no room.
func (n *Entity) full(m *model.Message, a Arrival) bool {
	if len(n.mail) < a.Room && n.bytes+m.Size() <= a.maxBytes() {
		return false
	}
	waiting, size := n.countQueued()

	return waiting >= a.Room || size+m.Size() > a.maxBytes() && waiting > 0
}

// countQueued returns how many calls and lock requests wait, and how many bytes they have. Of the
// calls of one hand-over, one runs and the others wait for it. Views run in parallel with
// everything else, so they do not count. A call that waits until its own row is stored counts as
// running, because it runs next.
func (n *Entity) countQueued() (waiting, size int) {
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

// refuseFull refuses a message because the mailbox is full.
func (n *Entity) refuseFull(d *Decision, m *model.Message, a Arrival) {
	waiting, size := n.countQueued()
	d.refuse(fault.Exhausted, fmt.Sprintf("%d calls and lock requests of %d bytes wait for %s: at most %d calls (MailboxSize) and %d bytes (MailboxBytes) may wait",
		waiting, size, m.To, a.Room, a.maxBytes()))
}

// findRequest finds the call that has the request id of a message, or the item that holds the
// message itself. The lane delivers the same message again when it could not store the effect of
// the message.
func (n *Entity) findRequest(m *model.Message) *Item {
	switch {
	case n.index.messages == nil:
		return n.find(func(it *Item) bool {
			return it.Message == m || m.RequestID != "" && it.Message.RequestID == m.RequestID
		})
	case m.RequestID != "":
		return n.index.requests[m.RequestID]
	default:
		return n.index.messages[m]
	}
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

// request puts the request of a lock into the mailbox. If a section repeats its request, it gets
// the same answer as before, or keeps its place in the mailbox.
func (n *Entity) request(d *Decision, m *model.Message, a Arrival, now model.Time) {
	switch {
	case n.Row.Address.Stateless():
		d.refuse(fault.Invalid, fmt.Sprintf("%s is a service: it cannot be locked", m.To))
		d.acknowledge(m)
	case n.isHeldBy(m.From):
		d.Messages = append(d.Messages, n.grantMessage(m.From))
	case n.lockRequest(m.From) >= 0:
	case n.full(m, a):
		n.refuseFull(d, m, a)
		d.acknowledge(m)
	default:
		it := &Item{At: now, Message: m}
		n.store(d, it)
		n.add(it)
	}
}

// lockRequest returns the index of a section's request, or -1.
func (n *Entity) lockRequest(section model.Link) int {
	return slices.IndexFunc(n.mail, func(it *Item) bool { return it.Message.Kind == model.MessageLock && it.Message.From == section })
}

// release ends a section at this entity, whether the section holds the lock or waits for it.
func (n *Entity) release(d *Decision, section model.Link) {
	if i := n.lockRequest(section); i >= 0 {
		n.remove(d, n.mail[i])
	}
	if n.isHeldBy(section) {
		n.free(d)
	}
}

// free takes the lock from its holder. It refuses the calls of the holder that have no result yet,
// even if a worker has begun them, because they must not take effect when another section has the
// lock. If the worker reports on them later, the report finds its calls gone and changes nothing.
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
		n.busy-- // while a section holds the lock, only its calls are handed over
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

// refuseCall answers a call that no worker will make.
func (d *Decision) refuseCall(m *model.Message, k fault.Kind, text string) {
	d.answerCall(m, model.Answer{Failure: &model.Failure{Kind: k.String(), Message: text}})
}

// answerCall sends the result of a call to its caller: a step, or a client.
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

// remove takes an item out of the mailbox. If the same decision has stored it, neither change
// reaches the store.
func (n *Entity) remove(d *Decision, it *Item) {
	i := slices.Index(n.mail, it)
	if i < 0 {
		return
	}

	if i == 0 {
		n.mail[0] = nil // most removed calls are at the front, so the others need not move
		n.mail = n.mail[1:]
	} else {
		n.mail = slices.Delete(n.mail, i, i+1)
	}

	n.bytes -= it.Message.Size()
	if it.View {
		n.views--
	}
	if it.Message.Section != "" {
		n.inside--
	}
	n.index.remove(it)
	n.indexMail()
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

// Begin lets workers have a held call, because its row is stored.
func (n *Entity) Begin(m *model.Message) {
	if it := n.findRequest(m); it != nil {
		it.held, it.early = false, false
	}
}

// bars reports whether the items behind an item wait because no worker may get that item yet.
func (n *Entity) bars(it *Item) bool {
	return it.early && !it.View && !n.Row.Address.Stateless() && !LockedOut(&n.Row, it.Message)
}

// NeedsSettle reports whether Settle may have something to do.
func (n *Entity) NeedsSettle() bool {
	return n.find(func(it *Item) bool { return it.lost || it.Message.Kind == model.MessageLock && !n.Row.Locked() }) != nil
}

// Settle answers calls that are lost, and grants the lock to the section whose turn it is. Deliver
// and Apply grant locks themselves. Settle is needed when the calls before the request disappeared
// in another way: they were only in memory and were lost in a crash or by Forget, or they turned
// out to be views.
func (n *Entity) Settle(now model.Time) Decision {
	var d Decision
	before := n.Row
	for _, it := range slices.Clone(n.mail) {
		if it.lost {
			n.remove(&d, it)
			d.refuseCall(it.Message, fault.Unavailable, Interrupted)
		}
	}
	n.expire(now)
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
	// Tokens follow the clock, so a new token is usually higher than the floor anyway.
	n.Row.Epoch = max(n.Row.Epoch+1, n.Floor+1, int64(now))
	d.Messages = append(d.Messages, n.grantMessage(it.Message.From))
}

// grantMessage returns the message that tells a section that it has the lock.
func (n *Entity) grantMessage(section model.Link) model.Message {
	return model.Message{
		Kind: model.MessageGrant, To: section.Address, ToRun: section.Run, ID: section.ID, From: model.Link{Address: n.Row.Address}, Epoch: n.Row.Epoch,
	}
}

// change adds the new row to the decision, if the row has changed.
func (n *Entity) change(d *Decision, before *model.Entity, now model.Time) {
	n.arm(d, now)
	r := &n.Row
	if r.Empty() {
		r.Log = nil
	}
	if sameLog(r.Log, before.Log) && r.Expires == before.Expires && r.Alarm == before.Alarm && r.Exists == before.Exists && r.Holder == before.Holder && r.Epoch == before.Epoch && r.State.Encoding == before.State.Encoding && sameBytes(r.State.Data, before.State.Data) {
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

// sameBytes reports whether two slices are the same memory. That is enough, because states are
// never changed in place.
func sameBytes(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Next returns the calls that may be made now as one hand-over. It returns at most `most` calls,
// which have about maxBytes bytes together. The worker makes them one after the other on the state
// of the row. The caller reports the results with Apply, or returns the calls with Return.
func (n *Entity) Next(most, maxBytes int) []*Item {
	if n.busy > 0 && !n.Row.Address.Stateless() {
		return nil
	}
	var items []*Item

	size := 0
	for _, it := range n.mail {

		m := it.Message
		switch {
		case n.bars(it):
			return n.hand(items)
		case it.made || it.View || it.held || it.lost:
			continue
		case LockedOut(&n.Row, m):
			continue
		case m.Kind == model.MessageLock:
			return n.hand(items) // a lock request is a barrier
		case it.isAccused(), it.alone && len(items) > 0:
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

// HasNext reports whether Next would return a call.
func (n *Entity) HasNext() bool {
	if n.busy > 0 && !n.Row.Address.Stateless() || n.Row.Locked() && n.inside == 0 {
		return false
	}
	for _, it := range n.mail {
		switch {
		case n.bars(it):
			return false
		case it.made || it.View || it.held || it.lost || LockedOut(&n.Row, it.Message):
			continue
		default:
			return it.Message.Kind != model.MessageLock && !it.isAccused()
		}
	}
	return false
}

// hand marks items as handed over.
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

// Interrupted is the failure of a call that is made at most once and whose result is lost.
const Interrupted = "the call was interrupted: it may have been made or not"

// Return takes calls back from a worker that did not report their results. Workers make most calls
// again. A call that is made at most once is lost: if it has a row, Settle answers it. If it is
// only in memory, Return removes it and returns it, and the caller of Return must answer it.
func (n *Entity) Return(items []*Item) (gone []*Item) {
	n.endHandOver(items)
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

// Keep adds the calls that were only in memory to an entity that the lane has read again from the
// store. These calls go behind the stored items. No worker has them, and no note about them is on
// its way into the store.
func (n *Entity) Keep(items []*Item) {
	for _, it := range items {
		it.made, it.noting = false, false
		n.add(it)
	}
}

// Forget drops a call that is only in memory and has not begun, because its caller no longer waits.
// It finds the call by its tag or by its request id. The request may have arrived earlier from
// another caller, with another tag. Forget reports whether there was such a call.
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

// Mark decides again which calls are views, because the code of the workers may have changed.
func (n *Entity) Mark(view func(name string) bool) {
	for _, it := range n.mail {
		if !it.made && it.Message.Kind == model.MessageCall && it.Message.Section == "" {
			n.setView(it, view(it.Message.Name))
		}
	}
}

// endHandOver notes that a hand-over is over, if the entity still has its items.
func (n *Entity) endHandOver(items []*Item) {
	known := false
	for _, it := range items {
		if it.made && slices.Contains(n.mail, it) {
			it.made, known = false, true
			it.isolate()
			n.suspects = n.suspects || it.isAccused()
		}
	}
	if known && !items[0].View {
		n.busy--
	}
}

// Apply applies a worker's report on a hand-over. version is the version of the row when the items
// were handed over. Apply returns false and applies no result if the row has changed since the
// hand-over, or if the entity no longer has one of the stored calls. Apply changes r: it turns the
// results of calls that did something forbidden into failures.
func (n *Entity) Apply(items []*Item, r *model.Operated, version int64, now model.Time) (Decision, bool) {
	var d Decision
	before := n.Row

	n.endHandOver(items)
	plain := !items[0].View && !n.Row.Address.Stateless()
	if plain && (n.Row.Version != version || n.Row.Locked() && !n.ofHolder(items)) {
		return d, false
	}

	n.confine(r)
	made := items[:min(len(r.Results), len(items))]
	for _, it := range made {
		if it.Seq != 0 && n.Current(it) == nil {
			return d, false // its caller has an answer already
		}
	}

	succeeded := false
	for i, it := range made {
		res := &r.Results[i]
		n.remove(&d, n.Current(it))
		if res.Failure == nil {
			succeeded = true
			for j := range res.Messages {
				d.Messages = append(d.Messages, *res.Messages[j].Bounded())
			}
		}
		d.answerCall(it.Message, model.Answer{Output: res.Output, Failure: res.Failure.Bounded()})
	}

	hand := items[0].hand
	if plain {
		n.log(made, r, now)
	}
	if r.Changed && plain {
		n.Row.State, n.Row.Exists = r.State, r.Exists
		switch {
		case !r.Exists:
			n.clearState()
		case !before.Exists || hand != nil && hand.Fresh:
			n.Row.Created = now
		}
	}
	if plain && succeeded {
		n.prolong(hand, now)
	}

	n.expire(now)
	n.grant(&d, now)
	n.change(&d, &before, now)
	return d, true
}

// ofHolder reports whether all calls come from the section that has the lock. The version of the
// row does not prove this. After a failed commit, the entity may apply its inputs in another order
// and reach the same version again, but with a lock.
func (n *Entity) ofHolder(items []*Item) bool {
	return !slices.ContainsFunc(items, func(it *Item) bool { return it.Message.Section == "" || !n.isHeldBy(sectionOf(it.Message)) })
}

// Current returns an item as the entity knows it now; nil when the entity does not have it. The
// item may have another position because it was delivered again, or be another object because it
// was read again.
func (n *Entity) Current(it *Item) *Item {
	m := it.Message
	if o := n.findRequest(m); o != nil || it.Seq == 0 {
		return o
	}
	return n.find(func(o *Item) bool {
		x := o.Message
		return o.Seq == it.Seq && x.Kind == m.Kind && x.From == m.From && x.RequestID == m.RequestID && x.Name == m.Name && x.Input.Equal(m.Input)
	})
}
