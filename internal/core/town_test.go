package core_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// town is a set of executions and entities that send each other messages. Messages with the same
// sender and the same receiver arrive in order, after any delay. The test commits every decision
// immediately. Calls of clients, and calls that workers are making, are not committed. They are
// lost when the owner of an entity crashes.
type town struct {
	*world
	houses map[model.Address]*house
	post   map[route][]model.Message
	routes []route         // routes with a message on its way
	old    []model.Message // delivered releases and grants, which the test may deliver again
	n      int             // the number of the last step
}

// route is a sender and a receiver.
type route struct{ from, to model.Address }

// house is an entity and its rows in the store.
type house struct {
	n       *core.Entity
	row     *model.Entity
	mailbox []model.MailboxItem
	jobs    []*handOver

	// asked has the accepted lock requests that are neither granted nor released, in order.
	asked []model.Link
	epoch int64    // token of the last lock
	made  []string // calls, in the order in which they were made
}

type handOver struct {
	items   []*core.Item
	version int64
}

func newTown(fatal func(format string, args ...any)) *town {
	return &town{world: newWorld(fatal), houses: map[model.Address]*house{}, post: map[route][]model.Message{}}
}

func entityAddress(key string) model.Address {
	return model.Address{Tenant: model.DefaultTenant, Type: model.EntityPrefix + "account", Key: key}
}

func (w *town) house(a model.Address) *house {
	h := w.houses[a]
	if h == nil {
		h = &house{n: core.NewEntity(a, nil, nil)}
		w.houses[a] = h
	}
	return h
}

func byAddress(a, b model.Address) int {
	return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Key, b.Key))
}

func (w *town) addresses() []model.Address { return slices.SortedFunc(maps.Keys(w.houses), byAddress) }

// collect puts the messages that an execution has sent onto their routes.
func (w *town) collect(from model.Address) {
	for _, m := range w.mail {
		r := route{from, m.To}
		if w.post[r] = append(w.post[r], m); len(w.post[r]) == 1 {
			w.routes = append(w.routes, r)
		}
	}
	w.mail = nil
}

// arrive delivers the next message of a route.
func (w *town) arrive(r route) {
	m := w.post[r][0]
	if w.post[r] = w.post[r][1:]; len(w.post[r]) == 0 {
		i := slices.Index(w.routes, r)
		w.routes = slices.Delete(w.routes, i, i+1)
	}
	if m.Kind == model.MessageGrant || m.Kind == model.MessageRelease {
		w.old = append(w.old, m)
	}
	w.hand(&m)
}

func (w *town) hand(m *model.Message) {
	if !m.To.IsEntity() {
		x := w.seat(m.To).x
		before := x.Clone()
		d := w.deliver(m)
		w.letsGo(before, w.seat(m.To).x, &d)
		w.collect(m.To)
		return
	}

	h := w.house(m.To)
	switch {
	case m.Kind == model.MessageLock && h.n.Row.Holder != m.From && !slices.Contains(h.asked, m.From):
		h.asked = append(h.asked, m.From)
	case m.Kind == model.MessageRelease:
		h.asked = slices.DeleteFunc(h.asked, func(l model.Link) bool { return l == m.From })
	}

	d := h.n.Deliver(m, core.Arrival{Stored: m.From.ID != "", Room: 1000}, w.now)
	w.commit(h, &d)
}

// do applies a turn of a run.
func (w *town) do(a model.Address, t model.Turn) error {
	before := w.seat(a).x.Clone()
	t.Run, t.Seen = before.Start.Run, before.Next-1
	d, err := w.turn(a, &t)
	if err == nil {
		w.letsGo(before, w.seat(a).x, &d)
	}
	w.collect(a)
	return err
}

func (w *town) command(a model.Address, c model.Command) error {
	return w.do(a, model.Turn{Commands: []model.Command{c}})
}

func (w *town) step() string {
	w.n++
	return fmt.Sprintf("step%d", w.n)
}

// letsGo checks that the decision that ends a section sends a release to every entity that the
// section has asked (L28, L32).
func (w *town) letsGo(before, after *core.Execution, d *core.Decision) {
	if before == nil {
		return
	}
	for _, s := range core.SectionsOf(before) {
		if after.Start.Run == before.Start.Run && slices.ContainsFunc(core.SectionsOf(after), func(o core.SectionFacts) bool { return o.ID == s.ID }) {
			continue
		}
		self := model.Link{Address: before.Start.Address, Run: before.Start.Run, ID: s.ID}
		for _, a := range s.AskedEntities() {
			if !slices.ContainsFunc(d.Messages, func(m model.Message) bool { return m.Kind == model.MessageRelease && m.To == a && m.From == self }) {
				w.fatal("L28: section %s is over, and %s is not told", s.ID, a)
			}
		}
	}
}

// commit writes what a decision does to an entity, with the guards of a store.
func (w *town) commit(h *house, d *core.Decision) {
	a := h.n.Row.Address
	holder := model.Link{}
	if h.row != nil {
		holder = h.row.Holder
	}

	if c := d.Entity; c != nil {
		switch {
		case (h.row == nil) != (c.Prev == 0) || h.row != nil && h.row.Version != c.Prev:
			w.fatal("the row of %s is changed from version %d, and is %+v", a, c.Prev, h.row)
		case c.Gone:
			h.row = nil
		default:
			row := c.Entity
			h.row = &row
		}
	}

	for _, seq := range d.Taken {
		i := slices.IndexFunc(h.mailbox, func(it model.MailboxItem) bool { return it.Seq == seq })
		if i < 0 {
			w.fatal("item %d is taken from the mailbox of %s, which does not have it", seq, a)
		}
		h.mailbox = slices.Delete(h.mailbox, i, i+1)
	}

	for _, it := range d.Mailbox {
		if n := len(h.mailbox); n > 0 && h.mailbox[n-1].Seq >= it.Seq {
			w.fatal("item %d comes behind %d in the mailbox of %s", it.Seq, h.mailbox[n-1].Seq, a)
		}
		h.mailbox = append(h.mailbox, it)
	}

	w.mail = append(w.mail, d.Messages...)
	w.collect(a)
	w.checkGrant(h, holder)
}

// checkGrant checks a lock that another section has got: the section that asked first gets it
// (L27), and its epoch is larger than all earlier ones (L37).
func (w *town) checkGrant(h *house, before model.Link) {
	row := &h.n.Row
	if h.row != nil && !equalRows(h.row, row) || h.row == nil && !row.Empty() {
		w.fatal("%s is %+v in memory and %+v in the store", row.Address, row, h.row)
	}
	if !row.Locked() || row.Holder == before {
		return
	}
	if len(h.asked) == 0 || h.asked[0] != row.Holder {
		w.fatal("L27: %s is locked for %+v, and the first to ask was %+v", row.Address, row.Holder, h.asked)
	}
	h.asked = h.asked[1:]
	if row.Epoch <= h.epoch {
		w.fatal("L37: epoch %d of %s follows %d", row.Epoch, row.Address, h.epoch)
	}
	h.epoch = row.Epoch
}

func equalRows(a, b *model.Entity) bool {
	return a.Version == b.Version && a.Exists == b.Exists && string(a.State.Data) == string(b.State.Data) && a.Holder == b.Holder && a.Epoch == b.Epoch
}

// begin hands calls of an entity to a worker.
func (w *town) begin(h *house, most int) bool {
	items := h.n.Next(most, 1<<20)
	if items == nil {
		return false
	}
	for _, it := range items {
		m := it.Message
		if section := (model.Link{Address: m.From.Address, Run: m.From.Run, ID: m.Section}); h.n.Row.Locked() && section != h.n.Row.Holder {
			w.fatal("L24: %s of %s is made, which is locked for %+v", m.Name, h.n.Row.Address, h.n.Row.Holder)
		}
	}
	h.jobs = append(h.jobs, &handOver{items, h.n.Row.Version})
	return true
}

// end lets the worker report the first results of a hand-over. A call fails if its name says so.
// The entity ignores the report when it no longer has the hand-over.
func (w *town) end(h *house, i, results int) {
	job := h.jobs[i]
	h.jobs = slices.Delete(h.jobs, i, i+1)
	state := string(h.n.Row.State.Data)
	r := &model.Operated{Entity: h.n.Row.Address, Changed: true, Exists: true}

	var made []string
	for _, it := range job.items[:min(results, len(job.items))] {
		res := model.OperationResult{Output: value("done")}
		if strings.HasPrefix(it.Message.Name, "fails") {
			res = model.OperationResult{Failure: &model.Failure{Kind: codeFailure, Message: "no"}}
		} else {
			state += it.Message.Name + ","
			made = append(made, it.Message.Name)
		}
		r.Results = append(r.Results, res)
	}

	r.State = value(state)
	d, ok := h.n.Apply(job.items, r, job.version, w.now)
	if !ok {
		if d.HasWrites() {
			w.fatal("a report that does not count writes %+v", d)
		}
		return
	}

	h.made = append(h.made, made...)
	w.commit(h, &d)
}

// crashHouse lets another node take over an entity from the store. The take-over advances the
// clock. If the entity has no row, its tokens grow only because the clock does.
func (w *town) crashHouse(h *house) {
	w.now = w.now.Add(time.Millisecond)
	h.n = core.NewEntity(h.n.Row.Address, h.row, slices.Clone(h.mailbox))
	h.jobs = nil
	d := h.n.Settle(w.now)
	w.commit(h, &d)
}

// sections returns the open sections of all runs, by their links.
func (w *town) sections() map[model.Link]core.SectionFacts {
	all := map[model.Link]core.SectionFacts{}
	for a, s := range w.seats {
		if s.x == nil || !s.x.Open() {
			continue
		}
		for _, f := range core.SectionsOf(s.x) {
			all[model.Link{Address: a, Run: s.x.Start.Run, ID: f.ID}] = f
		}
	}
	return all
}

// exclusive checks the locks that runs believe they have: each entity must really be locked for
// that section, with the token that the run knows. So no two sections have the same entity (L22),
// and a section continues only when it has all its locks (L23).
func (w *town) exclusive() {
	for link, s := range w.sections() {
		for i, epoch := range s.Epochs {
			if row := &w.house(s.Locks[i]).n.Row; row.Holder != link || row.Epoch != epoch {
				w.fatal("L22: section %+v believes to hold %s at %d, which is %+v", link, s.Locks[i], epoch, row)
			}
		}
		if !slices.IsSortedFunc(s.Locks, byAddress) {
			w.fatal("L25: section %+v locks %v", link, s.Locks)
		}
	}
}

// quiet delivers all messages and makes all calls that can be made, until there is nothing left to
// do.
func (w *town) quiet() {
	for moved := true; moved; {
		moved = false
		for _, r := range slices.Clone(w.routes) {
			w.arrive(r)
			moved = true
		}
		for _, a := range w.addresses() {
			h := w.house(a)
			for w.begin(h, 2) {
				moved = true
			}
			for len(h.jobs) > 0 {
				w.end(h, 0, 2)
				moved = true
			}
		}
	}
}

// checkKnown checks that every lock and every lock request at an entity belongs to an open section
// that has asked for it (L28, L29, L32). The test calls it when no message is on its way.
func (w *town) checkKnown() {
	sections := w.sections()
	for _, a := range w.addresses() {
		h := w.house(a)
		if row := &h.n.Row; row.Locked() {
			s, ok := sections[row.Holder]
			if i := slices.Index(s.Locks, a); !ok || i < 0 || i >= len(s.Epochs) {
				w.fatal("L29: %s is locked for %+v, which does not know", a, row.Holder)
			}
		}
		for _, it := range h.n.Mail() {
			if s, ok := sections[it.Message.From]; it.Message.Kind == model.MessageLock && (!ok || s.IsGranted() || s.Locks[len(s.Epochs)] != a) {
				w.fatal("L32: %+v waits for %s, which its run does not want", it.Message.From, a)
			}
		}
	}
}
