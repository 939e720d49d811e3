package crew

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// mostAlike is how many workers of the same class (see Hands) may join one owner. Further workers
// join only if they hold something of a lost owner.
const mostAlike = 64

// HostSide is the side of a node that has workers: it lets them join owners that lack their code.
type HostSide struct {
	HostConfig

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // of the incarnation; nil before Run
	closed  bool
	newest  model.Time               // the time of the newest view of the nodes
	owners  map[model.NodeID]*codeOf // the live nodes that own shards, or may own some
	deals   map[model.NodeID]*deal
	running sync.WaitGroup
}

// HostConfig has what a HostSide needs from its engine.
type HostConfig struct {
	Line Carrier
	Self model.NodeID
	Log  *slog.Logger
	// Workers returns the workers of this process.
	Workers func() []Hands
	// Members reads the live nodes from the store.
	Members func(ctx context.Context) (store.View, error)
}

// codeOf is the code that a node has.
type codeOf struct{ offers []store.Served }

// has reports whether the node has the code of a workflow in a version.
func (s *codeOf) has(tenant, name, version string) bool {
	return slices.ContainsFunc(s.offers, func(o store.Served) bool { return isCodeOf(&o, tenant, name) && o.Version == version })
}

// isCodeOf reports whether an offer is the code of a workflow or entity.
func isCodeOf(o *store.Served, tenant, name string) bool {
	return o.Worker == "" && o.Workflow == name && (o.Tenant == tenant || o.Tenant == model.EveryTenant)
}

// Differ reports whether nodes have different code. It ignores nodes that offer nothing at all,
// because they have just started. A node that offers only task workers counts as a node without
// code.
func Differ(members []store.Member) bool {
	var first *store.Member
	for i := range members {
		m := &members[i]
		if len(m.Serves) == 0 {
			continue
		}
		if first == nil {
			first = m
		}
		if !slices.Equal(ownCode(first), ownCode(m)) {
			return true
		}
	}
	return false
}

// ownCode returns what the programs of a node have registered, in the order of the lease: tenant,
// name and version. It leaves out the versions of entities, because any version can run the calls
// of an entity.
func ownCode(m *store.Member) (code [][3]string) {
	for _, s := range m.Serves {
		if s.Worker != "" || s.Tenant == model.EveryTenant || model.IsBuiltIn(s.Workflow) {
			continue
		}
		if (model.Address{Type: s.Workflow}).IsEntity() {
			s.Version = ""
		}
		code = append(code, [3]string{s.Tenant, s.Workflow, s.Version})
	}
	return code
}

// deal is the session with one owner.
type deal struct {
	*exchange

	host *HostSide
	left chan struct{} // closed when the session has ended and the workers have lost its runs

	// A goroutine that also needs the lock of the host takes the lock of the host first.
	mu      sync.Mutex
	last    uint64
	outlets map[uint64]*outlet
}

// outlet is one worker at one owner.
type outlet struct {
	deal  *deal
	id    uint64
	hands Hands
	names map[string]bool // names of the code for which the worker has joined
	slots SharedSlots     // nil when the worker takes any number

	mu        sync.Mutex
	wanted    int // slots that the owner needs and has not received
	granted   int
	over      bool
	retiring  bool          // the owner has the code itself, so the worker leaves; see retire
	withdrawn chan struct{} // closed when the owner hands over no further work
	answered  bool
}

// NewHostSide returns the side of a host; Run operates it.
func NewHostSide(cfg HostConfig) *HostSide {
	return &HostSide{HostConfig: cfg, owners: map[model.NodeID]*codeOf{}, deals: map[model.NodeID]*deal{}}
}

// Run serves until ctx ends. Then it ends all sessions, and waits until they have ended.
func (h *HostSide) Run(ctx context.Context) {
	h.mu.Lock()
	h.ctx = ctx
	h.mu.Unlock()
	h.Sync()
	<-ctx.Done()
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.running.Wait()
}

// SetMembers receives the nodes that are alive, with the code that they have. It ends the work for
// all other nodes.
func (h *HostSide) SetMembers(v *store.View) {
	h.mu.Lock()
	clear(h.owners)
	for i := range v.Members {
		// A node that offers nothing at all has just started, or owns nothing.
		if m := &v.Members[i]; m.ID != h.Self && m.Expires >= v.Now && len(m.Serves) > 0 {
			h.owners[m.ID] = &codeOf{m.Serves}
		}
	}
	h.endGone(v)
	h.mu.Unlock()
	h.Sync()
}

// endGone ends the sessions with owners that are gone. It returns false, and ends none, if the view
// is older than another one: several goroutines read the nodes, and an owner may have registered
// since. A view that is much older is not late: the clock of the store has gone back. The caller
// holds the lock.
func (h *HostSide) endGone(v *store.View) bool {
	if v.Now < h.newest && h.newest.Sub(v.Now) < grace {
		return false
	}
	h.newest = v.Now
	for node, d := range h.deals {
		if !slices.ContainsFunc(v.Members, func(m store.Member) bool { return m.ID == node && m.Expires >= v.Now }) {
			d.end(errGone)
		}
	}
	return true
}

// LoseNode handles the loss of the connection to a node. Frames may be lost with the connection.
func (h *HostSide) LoseNode(node model.NodeID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.deals[node]; d != nil {
		ring(d.again)
	}
}

// Sync lets workers join the owners that lack their code, and lets idle workers leave the owners
// that have their code by now. The engine calls it when workers or nodes have joined.
func (h *HostSide) Sync() {
	for _, o := range h.sync() {
		o.leave()
	}
}

// sync does the work of Sync, except that it returns the outlets that leave.
func (h *HostSide) sync() (gone []*outlet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil || h.closed {
		return nil
	}
	all := h.Workers()
	for node, s := range h.owners {
		h.offer(node, s, all, nil)
		if d := h.deals[node]; d != nil {
			gone = append(gone, d.retire(s)...)
		}
	}
	return gone
}

// offer lets workers join an owner for the code that the owner lacks, and for the runs and entities
// that they hold. The caller holds the lock.
func (h *HostSide) offer(node model.NodeID, s *codeOf, all []Hands, held map[Hands]bool) {
	d := h.deals[node]
	alike := map[string]int{}
	for _, w := range all {
		var joined map[string]bool
		if d != nil {
			joined = d.joined(w)
		}
		keeps := map[string]bool{}
		if held[w] {
			keeps = w.heldNames()
		}

		var names []string
		for _, name := range w.names() {
			if !joined[name] && !model.IsBuiltIn(name) && (keeps[name] || !w.isServed(name, s)) {
				names = append(names, name)
			}
		}
		if len(names)+len(joined) == 0 {
			continue
		}
		if alike[w.class()]++; alike[w.class()] > mostAlike && len(keeps) == 0 || len(names) == 0 {
			continue
		}

		if d == nil {
			d = h.begin(node)
		}
		d.join(w, names)
	}
}

// begin starts a session with an owner. The caller holds the lock.
func (h *HostSide) begin(node model.NodeID) *deal {
	d := &deal{exchange: newExchange(h.Line, node, model.RunID(uuid.Must(uuid.NewV7())), bySender), host: h, outlets: map[uint64]*outlet{}, left: make(chan struct{})}
	d.take, d.ended, d.beats = d.receive, d.close, true
	h.deals[node] = d
	ctx := h.ctx
	h.running.Go(func() { d.run(ctx) })
	return d
}

// joined returns the names for which a worker has joined and is not about to leave.
func (d *deal) joined(w Hands) map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names map[string]bool
	for _, o := range d.outlets {
		if o.hands != w || o.isRetiring() {
			continue
		}
		if names == nil {
			names = map[string]bool{}
		}
		for n := range o.names {
			names[n] = true
		}
	}
	return names
}

// join lets a worker join the owner.
func (d *deal) join(w Hands, names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	o := &outlet{deal: d, id: d.last, hands: w, names: map[string]bool{}, slots: w.slots(), withdrawn: make(chan struct{})}
	for _, n := range names {
		o.names[n] = true
	}
	d.outlets[o.id] = o
	p := w.join(names)
	p.Role = o.id
	d.post(p)
}

// close ends the session. It takes all runs and calls of the owner from the workers. If the owner
// still lives, the workers join it again in a new session.
func (d *deal) close(why error) {
	h := d.host
	h.Log.Info("the workers of this node no longer work for another node", "node", d.to.String(), "reason", why.Error())
	d.mu.Lock()
	all := d.outlets
	d.outlets = map[uint64]*outlet{}
	d.mu.Unlock()
	for _, o := range all {
		o.end()
		o.hands.loseOwner(o)
	}
	close(d.left)

	h.mu.Lock()
	if h.deals[d.to] == d {
		delete(h.deals, d.to)
	}
	ctx := h.ctx
	h.mu.Unlock()
	if pause(ctx, patience/20) {
		h.Sync()
	}
}

// receive takes a parcel of the owner.
func (d *deal) receive(_ context.Context, p *parcel) error {
	d.mu.Lock()
	o := d.outlets[p.Role]
	d.mu.Unlock()
	if o == nil {
		return nil // the worker has left
	}

	switch p.Kind {
	case toWorker:
		item, err := unpack(p, &pb.ServerItem{})
		if err != nil {
			return err
		}
		return o.hands.take(o, item)
	case lose:
		e, err := unpack(p, &pb.Evict{})
		if err != nil {
			return err
		}
		return o.hands.lose(o, e)
	case withdrawn:
		o.hearWithdrawn()
		if o.isRetiring() {
			d.host.Sync()
		}
	case need:
		o.need(p.N)
	case returned:
		o.takeBack(p.N)
	default: // of a newer build
	}
	return nil
}

// wait sends a message of the worker. It blocks while the owner takes nothing.
func (o *outlet) wait(ctx context.Context, item *pb.WorkerItem) error {
	return o.deal.wait(ctx, parcel{Kind: fromWorker, Role: o.id, Body: pack(item)})
}

// post also sends a message of the worker, and never blocks.
func (o *outlet) post(item *pb.WorkerItem) {
	o.deal.post(parcel{Kind: fromWorker, Role: o.id, Body: pack(item)})
}

// need notes that the owner needs slots, and grants the free slots.
func (o *outlet) need(n int) {
	o.mu.Lock()
	o.wanted = min(o.wanted+min(max(0, n), mostAsked), mostAsked)
	o.mu.Unlock()
	o.grant()
}

// grant gives the owner as many slots as it needs, if that many are free, and otherwise all free
// slots.
func (o *outlet) grant() {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for o.wanted > 0 && !o.over && (o.slots == nil || o.slots.TakeFor(o, func() { go o.grant() })) {
		o.wanted--
		n++
	}
	if n > 0 {
		o.granted += n
		o.deal.post(parcel{Kind: granted, Role: o.id, N: n})
	}
}

// takeBack takes slots that the owner does not need.
func (o *outlet) takeBack(n int) {
	o.mu.Lock()
	n = min(max(0, n), o.granted)
	o.granted -= n
	o.mu.Unlock()
	o.free(n)
}

func (o *outlet) free(n int) {
	if o.slots == nil {
		return
	}
	for range n {
		o.slots.Free()
	}
}

// end takes all slots back.
func (o *outlet) end() {
	o.mu.Lock()
	n := o.granted
	o.granted, o.over = 0, true
	o.mu.Unlock()
	if o.slots != nil {
		o.slots.Forget(o)
	}
	o.free(n)
	o.hearWithdrawn()
}

func (o *outlet) hearWithdrawn() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.answered {
		o.answered = true
		close(o.withdrawn)
	}
}

// outletsOf returns the outlets of a worker, one for each owner that it works for.
func (h *HostSide) outletsOf(w Hands) (all []*outlet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.deals {
		d.mu.Lock()
		for _, o := range d.outlets {
			if o.hands == w {
				all = append(all, o)
			}
		}
		d.mu.Unlock()
	}
	return all
}

// Withdraw tells the owners that a worker takes no new work, and waits until no work is on its way
// to the worker.
func (h *HostSide) Withdraw(ctx context.Context, w Hands) {
	all := h.outletsOf(w)
	for _, o := range all {
		o.deal.post(parcel{Kind: withdraw, Role: o.id})
	}
	for _, o := range all {
		select {
		case <-o.withdrawn:
		case <-ctx.Done():
			return
		}
	}
}

// Leave ends the work of a worker for other owners.
func (h *HostSide) Leave(w Hands) {
	for _, o := range h.outletsOf(w) {
		o.leave()
	}
}

// Lose ends the work of a worker of entities that has disappeared. The caller has called Withdraw
// before. unseen returns the hand-overs that cannot have reached the worker, as the worker numbers
// them. A hand-over may still be on its way to this node. So Lose does not ask before the owner has
// said that nothing more is on its way, or has been silent for too long. It does not block.
func (h *HostSide) Lose(w *EntityHands, unseen func() []uint64) {
	all := h.outletsOf(w)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil || h.closed {
		return // all sessions end
	}
	ctx := h.ctx
	for _, o := range all {
		h.running.Go(func() {
			brief, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			select {
			case <-o.withdrawn:
			case <-brief.Done():
			}
			o.lose(w.numbersFor(o, unseen()))
		})
	}
}

// hear receives a frame of an owner.
func (h *HostSide) hear(from model.NodeID, f *frame, answer func([]byte)) {
	if f.Side == asking {
		h.hearQuestion(from, answer)
		return
	}
	h.mu.Lock()
	d := h.deals[from]
	h.mu.Unlock()
	if d == nil || d.id != f.Session || d.isOver() {
		answer([]byte{unknown})
		return
	}
	d.hear(f, answer)
}

// hearQuestion answers a node that has acquired shards. It first tells that node which runs and
// entities of lost owners the workers here hold, and answers the question when the node has this
// information.
func (h *HostSide) hearQuestion(from model.NodeID, answer func([]byte)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil || h.closed {
		return
	}
	ctx := h.ctx
	h.running.Go(func() {
		if !h.noticeGone(ctx) {
			return // the node asks again
		}
		ctx, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		if d := h.nameHeld(from); d != nil {
			if d.rest(ctx); d.isOver() || ctx.Err() != nil {
				return // the node may not know, so it asks again
			}
		}
		answer([]byte{taken})
	})
}

// HasSessions reports whether workers of this node work for other nodes, or have not yet lost the
// runs and entities of an owner that is gone.
func (h *HostSide) HasSessions() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.deals) > 0
}

// Settle waits until the workers of this node have lost the runs and entities of owners that are
// gone. It returns false if ctx ended first.
func (h *HostSide) Settle(ctx context.Context) bool {
	for h.HasSessions() && !h.noticeGone(ctx) {
		if !pause(ctx, patience/20) {
			return false
		}
	}
	return true
}

// mostReads is how often a node reads the members for one question, if other goroutines keep
// reading newer ones.
const mostReads = 3

// noticeGone makes the workers lose the runs and entities of owners that are gone, and of shards
// that their owners have given up. This node reads the members with each renewal of its
// lease, and another node may have read them since.
func (h *HostSide) noticeGone(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	isLate := true
	for range mostReads {
		asked := time.Now()
		v, err := h.Members(ctx)
		if err != nil {
			return false
		}
		h.mu.Lock()
		isLate = !h.endGone(&v)
		h.mu.Unlock()
		if !isLate {
			h.loseMoved(&v, asked)
			break
		}
	}
	if isLate {
		return false
	}

	h.mu.Lock()
	var over []*deal
	for _, d := range h.deals {
		if d.isOver() {
			over = append(over, d)
		}
	}
	h.mu.Unlock()

	for _, d := range over {
		select {
		case <-d.left:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// loseMoved makes the workers lose the runs and calls of shards that their owners have given up,
// according to the view. One of the owners may be this node. An owner says so of runs too, but its
// message may arrive later than the question of the next owner. What arrived after the given time,
// when the view was requested, stays: its owner may have acquired the shard since. So does what
// belongs to shards whose owner the store could not read.
func (h *HostSide) loseMoved(v *store.View, asked time.Time) {
	layout, owners := v.Layout(), map[model.ShardID]model.NodeID{}
	for _, o := range v.Owners {
		if !o.Old {
			owners[o.Shard] = o.Node
		}
	}

	h.mu.Lock()
	deals := slices.Collect(maps.Values(h.deals))
	h.mu.Unlock()
	movedFrom := func(node model.NodeID) func(model.Address) bool {
		return func(a model.Address) bool {
			owner, known := owners[layout.Shard(a)]
			return known && owner != node
		}
	}
	for _, w := range h.Workers() {
		w.loseMoved(nil, asked, movedFrom(h.Self))
	}
	for _, d := range deals {
		moved := movedFrom(d.to)
		d.mu.Lock()
		outlets := slices.Collect(maps.Values(d.outlets))
		d.mu.Unlock()
		for _, o := range outlets {
			o.hands.loseMoved(o, asked, moved)
		}
	}
}

// nameHeld tells an owner which runs and entities of lost owners the workers here hold. It returns
// the session with the owner, or nil if there is nothing to tell.
func (h *HostSide) nameHeld(to model.NodeID) *deal {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.Workers()
	held := map[Hands]bool{}
	for _, w := range all {
		if _, ok := w.held(); ok {
			held[w] = true
		}
	}
	if len(held) == 0 || h.closed {
		return nil
	}

	s := h.owners[to]
	if s == nil {
		s = &codeOf{}
	}
	if d := h.deals[to]; d != nil {
		d.tellHeld(held)
	}
	h.offer(to, s, all, held)
	return h.deals[to]
}

// tellHeld tells the owner which runs and entities of lost owners the workers hold. It covers only
// workers that had already joined the owner.
func (d *deal) tellHeld(held map[Hands]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.outlets {
		if p, ok := o.hands.held(); ok && held[o.hands] {
			p.Role = o.id
			d.post(p)
		}
	}
}

// Dispatcher receives the messages of other nodes, for both sides of a node.
type Dispatcher struct {
	Owner *OwnerSide
	Host  *HostSide
	Log   *slog.Logger
}

// Handle receives a frame of another node. It does not block.
func (h Dispatcher) Handle(from model.NodeID, body []byte, answer func([]byte)) {
	f, err := decodeFrame(body)
	if err != nil {
		h.Log.Warn("cannot read what another node says about workers; is it of another version?", "node", from.String(), "error", err)
		return
	}
	if f.Side == bySender {
		h.Owner.hear(from, &f, answer)
		return
	}
	h.Host.hear(from, &f, answer)
}

// LoseNode handles the loss of the connection to a node.
func (h Dispatcher) LoseNode(node model.NodeID) {
	h.Owner.LoseNode(node)
	h.Host.LoseNode(node)
}

// Ask asks other nodes which runs and entities of lost owners their workers hold, and waits until
// this node has this information. It gives up when ctx ends. It reports whether all nodes have
// answered.
func Ask(ctx context.Context, line Carrier, nodes []model.NodeID) bool {
	body := (&frame{Side: asking}).encode()
	var wg sync.WaitGroup
	var answers atomic.Int64
	for _, node := range nodes {
		wg.Go(func() {
			for ctx.Err() == nil {
				brief, cancel := context.WithTimeout(ctx, patience)
				_, err := line.Call(brief, node, body)
				cancel()
				if err == nil {
					answers.Add(1)
					return
				}
			}
		})
	}

	wg.Wait()
	return int(answers.Load()) == len(nodes)
}
