package queue

import "slices"

// This file implements the order of Q2 for one class: levels (priorities), tenants of a level, keys
// of a tenant, and lines of a key.
//
// Groups of the gate cut across that order: one limit may hold back thousands of keys, and opens
// and closes with every task that ends. So the board reaches lines through cells. A cell holds the
// lines of one group under one tenant. An open cell is listed only under the key of its best line,
// because its other lines come later anyway. So a group opens and closes in as many steps as it has
// cells, however many keys and tasks the cells contain.

// stride is how much a task of weight 1 advances the time of its key.
const stride = 1 << 20

func strideOf(weight int) int64 { return stride / int64(min(max(weight, 1), stride)) }

// share is a position in a fair order: the time of a tenant or key by the clock of its parent, and
// a sequence number that decides between equal times. A share only grows.
type share struct {
	time int64
	seq  uint64
}

func (s share) before(o share) bool {
	if s.time != o.time {
		return s.time < o.time
	}
	return s.seq < o.seq
}

// level is a priority. It exists while tasks of this priority wait. When it is created again, all
// of its tenants start again.
type level struct {
	class    *class
	priority int
	at       int32
	leaves   int
	clock    int64
	tenants  map[string]*tenant
	active   heap[*tenant, byTenant]
}

// tenant is a tenant in a level. It exists while tasks of the tenant wait in this level.
type tenant struct {
	share
	level  *level
	name   string
	at     int32
	leaves int
	clock  int64
	keys   map[keyName]*key
	cells  map[cellName]*cell
	active heap[*key, byKey]
}

type keyName struct{ queue, fair string }

// key is a fair key of a tenant in a queue. It exists while tasks of this key wait.
type key struct {
	share
	tenant *tenant
	name   keyName
	at     int32
	leaves int
	cells  heap[*cell, byBest] // open cells whose best line has this key
	// shared lists the elements of cells (the field above) that have several lines. When the key is
	// served, the line of another key may become the best line of such a cell.
	shared []*cell
}

type cellName struct {
	site  *site
	group *group
}

// cell holds the lines of a gate group and a site under one tenant of a level. These lines open and
// close together.
type cell struct {
	tenant *tenant
	name   cellName
	leaves heap[*leaf, byShare]
	key    *key // the key that the cell is listed under; nil while the cell is closed

	at, sharedAt, siteAt, groupAt int32
}

// leaf is a line in a class.
type leaf struct {
	line *line
	cell *cell
	key  *key
	// seen is the share that the key had when the leaf got its place in the order. If the share of
	// the key has grown since, the leaf belongs further back.
	seen share
	at   int32
}

type byPriority struct{}

func (byPriority) before(a, b *level) bool { return a.priority > b.priority }
func (byPriority) place(l *level) *int32   { return &l.at }

type byTenant struct{}

func (byTenant) before(a, b *tenant) bool { return a.share.before(b.share) }
func (byTenant) place(t *tenant) *int32   { return &t.at }

type byKey struct{}

func (byKey) before(a, b *key) bool { return a.share.before(b.share) }
func (byKey) place(k *key) *int32   { return &k.at }

type byBest struct{}

func (byBest) before(a, b *cell) bool {
	return a.leaves.top().line.tasks.top().before(b.leaves.top().line.tasks.top())
}
func (byBest) place(c *cell) *int32 { return &c.at }

type byShare struct{}

func (byShare) before(a, b *leaf) bool {
	if a.seen != b.seen {
		return a.seen.before(b.seen)
	}
	return a.line.tasks.top().before(b.line.tasks.top())
}
func (byShare) place(l *leaf) *int32 { return &l.at }

// enter lists a line in a class that covers it. The line has a task. A tenant or key without
// waiting tasks starts as if it had just been served: it joins at the end of the round. So a stream
// of new keys does not overtake the waiting keys. Because of that, the board need not remember keys
// that were served and have no tasks left. When such a key comes back, it gets the time that it
// would have had if the board had remembered the key.
func (b *Board) enter(c *class, ln *line) {
	lv := c.levels[ln.name.priority]
	if lv == nil {
		lv = &level{class: c, priority: ln.name.priority, tenants: map[string]*tenant{}}
		c.levels[lv.priority] = lv
	}

	t := lv.tenants[ln.name.tenant]
	if t == nil {
		t = &tenant{level: lv, name: ln.name.tenant, keys: map[keyName]*key{}, cells: map[cellName]*cell{}}
		t.share = share{lv.clock + strideOf(b.cfg.Weights[t.name]), b.tick()}
		lv.tenants[t.name] = t
	}

	k := t.keys[keyName{ln.name.queue, ln.name.fair}]
	if k == nil {
		k = &key{tenant: t, name: keyName{ln.name.queue, ln.name.fair}}
		k.share = share{t.clock + strideOf(ln.tasks.top().Spec.Weight), b.tick()}
		t.keys[k.name] = k
	}

	lv.leaves++
	t.leaves++
	k.leaves++

	cl := t.cells[cellName{ln.site, ln.group}]
	if cl == nil {
		cl = &cell{tenant: t, name: cellName{ln.site, ln.group}}
		t.cells[cl.name] = cl
		appendCell(&ln.site.cells, cl, siteIndex)
		appendCell(&ln.group.cells, cl, groupIndex)
	}

	lf := &leaf{line: ln, cell: cl, key: k, seen: k.share}
	ln.leaves = append(ln.leaves, lf)
	b.touch(lf)
}

// exit undoes enter, except for the line's own list of leaves. It does not look at the tasks of the
// line, because the line may be empty.
func (b *Board) exit(lf *leaf) {
	b.withdraw(lf)
	lf.uncount()
}

// withdraw takes a leaf out of its cell.
func (b *Board) withdraw(lf *leaf) {
	cl := lf.cell
	cl.leaves.remove(lf)
	b.refresh(cl)
	if cl.leaves.len() == 0 {
		delete(cl.tenant.cells, cl.name)
		removeCell(&cl.name.site.cells, cl, siteIndex)
		removeCell(&cl.name.group.cells, cl, groupIndex)
	}
}

// uncount removes a withdrawn leaf from the counts, and drops a key, tenant or level without
// waiting tasks.
func (lf *leaf) uncount() {
	k := lf.key
	t := k.tenant
	lv := t.level
	if k.leaves--; k.leaves == 0 {
		delete(t.keys, k.name)
	}
	if t.leaves--; t.leaves == 0 {
		delete(lv.tenants, t.name)
	}
	if lv.leaves--; lv.leaves == 0 {
		delete(lv.class.levels, lv.priority)
	}
}

// touch puts a leaf at its place in the order. The leaf is new, or its line has another first task.
func (b *Board) touch(lf *leaf) {
	lf.cell.leaves.put(lf)
	b.refresh(lf.cell)
}

// best returns the first leaf of a cell. Shares only grow, so a leaf that was sorted by an older
// share is too far to the front, never too far to the back.
func (cl *cell) best() *leaf {
	for {
		lf := cl.leaves.top()
		if lf.seen == lf.key.share {
			return lf
		}
		lf.seen = lf.key.share
		cl.leaves.put(lf)
	}
}

// refresh lists an open cell under the key of its best line, and a closed cell under no key. The
// board calls it after every change that may affect the listing.
func (b *Board) refresh(cl *cell) {
	var want *key
	if cl.leaves.len() > 0 && !cl.name.group.closed && !cl.name.site.paused {
		want = cl.best().key
	}

	if cl.key != want {
		if cl.key != nil {
			b.hide(cl)
		}
		if want != nil {
			b.show(cl, want)
		}
	} else if want != nil {
		want.cells.put(cl)
	}

	if want == nil {
		return
	}

	switch many := cl.leaves.len() > 1; {
	case many && cl.sharedAt == 0:
		appendCell(&want.shared, cl, sharedIndex)
	case !many && cl.sharedAt != 0:
		removeCell(&want.shared, cl, sharedIndex)
	}
}

func (b *Board) refreshAll(cells []*cell) {
	for _, cl := range cells {
		b.refresh(cl)
	}
}

// show lists an open cell under a key, and activates the key, tenant, level and class if necessary.
func (b *Board) show(cl *cell, k *key) {
	t := k.tenant
	cl.key = k
	k.cells.put(cl)
	if !t.active.has(k) {
		t.active.put(k)
	}
	if !t.level.active.has(t) {
		t.level.active.put(t)
	}
	if c := t.level.class; !c.active.has(t.level) {
		c.active.put(t.level)
		b.settle(c)
	}
}

// hide undoes show.
func (b *Board) hide(cl *cell) {
	k := cl.key
	t := k.tenant
	cl.key = nil
	removeCell(&k.shared, cl, sharedIndex)
	k.cells.remove(cl)
	if k.cells.len() > 0 {
		return
	}

	t.active.remove(k)
	if t.active.len() > 0 {
		return
	}
	t.level.active.remove(t)
	if t.level.active.len() > 0 {
		return
	}

	c := t.level.class
	c.active.remove(t.level)
	b.settle(c)
}

// charge counts a task that starts: it advances the shares of the tenant and the key of the task in
// a class. The shares of a tenant or key without waiting tasks need not advance, see enter.
func (b *Board) charge(c *class, it *Item) {
	lv := c.levels[it.Spec.Priority]
	if lv == nil {
		return
	}
	t := lv.tenants[it.Ref.Address.Tenant]
	if t == nil {
		return
	}

	// The time of a tenant that was held back may be behind the clock. The tenant gets no credit
	// for the time in which it was held back.
	lv.clock = max(lv.clock, t.time)
	t.share = share{lv.clock + strideOf(b.cfg.Weights[t.name]), b.tick()}
	if lv.active.has(t) {
		lv.active.put(t)
	}
	k := t.keys[keyName{it.Spec.Queue, it.Spec.Fair}]
	if k == nil {
		return
	}

	t.clock = max(t.clock, k.time)
	k.share = share{t.clock + strideOf(it.Spec.Weight), b.tick()}
	if t.active.has(k) {
		t.active.put(k)
	}
	// The loop goes backwards, because refresh may remove the cell that it is called for. In that
	// case it fills the place of that cell with the last cell, which the loop has already visited.
	for _, cl := range slices.Backward(k.shared) {
		b.refresh(cl)
	}
}

// The functions below handle lists of cells without an order. Each cell knows its index in each
// list.

func siteIndex(cl *cell) *int32   { return &cl.siteAt }
func groupIndex(cl *cell) *int32  { return &cl.groupAt }
func sharedIndex(cl *cell) *int32 { return &cl.sharedAt }

func appendCell(list *[]*cell, cl *cell, index func(*cell) *int32) {
	*list = append(*list, cl)
	*index(cl) = int32(len(*list))
}

func removeCell(list *[]*cell, cl *cell, index func(*cell) *int32) {
	i := int(*index(cl)) - 1
	if i < 0 {
		return
	}
	last := len(*list) - 1
	moved := (*list)[last]
	(*list)[i] = moved
	*index(moved) = int32(i + 1)
	(*list)[last] = nil
	*list = (*list)[:last]
	*index(cl) = 0
}
