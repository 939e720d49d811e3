package store

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// NodeInfo describes a process that runs the engine.
type NodeInfo struct {
	ID model.NodeID
	// Host and the following fields identify the process on its host. With them, another process on
	// the same host can prove that this process is gone.
	Host      string // name of the machine
	BootID    string // changes with every boot of the machine
	Namespace string // the namespace of the process id and of the start time
	PID       int
	PIDStart  int64 // start time of the process in clock ticks since boot
	Version   string
	// LinkAddress is where the node listens for other nodes, and LinkKey is the fingerprint of the
	// certificate that it presents there. Both are empty if it does not listen. Only a store that
	// several nodes can share stores these two fields.
	LinkAddress, LinkKey string
	// Weight is the share of the shards that the node should own, relative to the weights of the
	// other nodes. Zero means that the node runs an older build, which does not know weights or
	// orders to drain. Only a store that several nodes can share stores the weight.
	Weight int
	// Drained says that an operator has asked the node to hand its shards over and to take no
	// others. Ownership.SetDrained changes this field. Only a store that several nodes can share
	// stores it.
	Drained bool
	// Groups are the shard groups whose shards the node takes; none means the default group. Only a
	// store that several nodes can share stores the groups.
	Groups []string
	// Home is the process of the node: an id that stays the same when the process registers again
	// under another ID. Zero means that the node runs an older build, which does not store the
	// names of its remote workers, see Workers. Only a store that several nodes can share stores
	// Home.
	Home model.NodeID

	// Sole means that no other process has the store open. If it is set, Register removes every
	// other node without waiting for its lease. Those nodes belong to dead processes, or to an
	// earlier life of this process. Sole is not stored. A shared store refuses it.
	Sole bool
}

// TakesGroup reports whether the node takes shards of a group.
func (n *NodeInfo) TakesGroup(name string) bool {
	if len(n.Groups) == 0 {
		return name == model.DefaultGroup
	}
	return slices.Contains(n.Groups, name)
}

// Registration is the result of Register.
type Registration struct {
	Epoch int64
	Now   model.Time // store time
}

// Member is a registered node as other nodes see it.
type Member struct {
	NodeInfo
	Epoch   int64
	Expires model.Time
	// TTL is the length of the lease that ends at Expires. Nodes may have leases of different
	// lengths. TTL is zero if a node of an older release wrote the lease.
	TTL time.Duration
	// Draining says that the node keeps its lease but takes no new shards.
	Draining bool
	// Serves is what the workers of the node can execute.
	Serves []Served
}

// Served is a workflow that a worker can execute or, if Worker is set, a task worker.
type Served struct {
	Tenant, Workflow string
	Version          string `json:",omitempty"` // version of its code, if it has one
	Pinned           bool   `json:",omitempty"` // the worker continues only runs of its version

	// Worker is the name of a task worker. It executes tasks of the activities on the queues, at
	// most Slots at a time. If Draining is set, it starts no new tasks.
	Worker string `json:",omitempty"`
	// Workers is how many remote workers make the same offer; zero means one. Slots is the sum of
	// their slots, and Worker is the name of one of them.
	Workers    int      `json:",omitempty"`
	Queues     []string `json:",omitempty"`
	Activities []string `json:",omitempty"`
	Slots      int      `json:",omitempty"`
	Draining   bool     `json:",omitempty"`

	// Limits and Breakers are the names that the code of the activities gives to limits and
	// breakers.
	Limits   []string `json:",omitempty"`
	Breakers []string `json:",omitempty"`
}

// EncodeServed encodes the list as text for a column.
func EncodeServed(s []Served) string {
	if len(s) == 0 {
		return ""
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // impossible: s has only texts, numbers and booleans
	}
	return string(text)
}

// DecodeServed decodes the text. If the text cannot be decoded, because a newer version wrote it,
// DecodeServed returns an empty list.
func DecodeServed(text string) (s []Served) {
	if text != "" && json.Unmarshal([]byte(text), &s) != nil {
		return nil
	}
	return s
}

// AddressKey names an address and its shard.
type AddressKey struct {
	Shard   model.ShardID
	Address model.Address
}

// ShardOwner is a row of the shard table. A zero Node means that the shard is free.
type ShardOwner struct {
	Shard model.ShardID
	Node  model.NodeID
	Epoch int64
	// Old says that Members could not read the row, because the database of the shard is away. This
	// is the owner that the store has seen last. Other calls do not set Old.
	Old bool
}

// RenewRequest renews a lease.
type RenewRequest struct {
	Node     model.NodeID
	Epoch    int64
	TTL      time.Duration
	Draining bool
	// Shards are the shards that the node owns. The view reports whether mail waits for them.
	Shards []model.ShardID
	// Serves is what the workers of the node can execute now.
	Serves []Served
}

// FenceRequest asks for the removal of a node. If neither Abandoned nor Proven is set, the lease
// must have expired by the clock of the store.
type FenceRequest struct {
	Node  model.NodeID
	Epoch int64
	// Expires is the end of the lease that the caller has seen, or zero. If the lease has another
	// end by now, the node has renewed it, so the store keeps the node.
	Expires model.Time
	// Abandoned says that the lease ends late only because the store's clock went back, and that
	// the node has not renewed it since. So the store does not wait for the end of the lease. A
	// request with Abandoned must also set Expires.
	Abandoned bool
	// Proven says that the process of the node has provably ended. The store does not look at the
	// lease then.
	Proven bool
}

// Ends reports whether the request ends a registration with this epoch, and with a lease that ends
// at expires. The parameter expired says whether the lease has expired by the clock of the store.
func (r *FenceRequest) Ends(epoch int64, expires model.Time, expired bool) bool {
	switch {
	case epoch != r.Epoch:
		return false // if one incarnation of a node is dead, the next one may be alive
	case r.Proven:
		return true
	case r.Expires == 0:
		return expired
	}
	return expires == r.Expires && (expired || r.Abandoned)
}

// View is the state of the cluster at one moment, by the clock of the store.
type View struct {
	Now     model.Time
	Members []Member
	Owners  []ShardOwner // every shard, in order
	// Groups are the shard groups in addition to the default one.
	Groups []model.Group
	// Mail means that messages or inbox rows wait for shards of the request.
	Mail bool
	// PeerMail means that notes from other nodes wait for the node of the request.
	PeerMail bool
	// Settings is the counter of settings. If a node has seen only a lower number, it must load the
	// changes.
	Settings int64
}

// Layout returns the layout of the store: the shards of each group, and the shard of each address.
func (v *View) Layout() model.Layout { return model.NewLayout(len(v.Owners), v.Groups) }

// AcquiredShard is a shard that the node has just acquired, with the state that moves with it.
type AcquiredShard struct {
	Shard model.ShardID
	// Received is the position up to which messages from another shard have been consumed.
	Received map[model.ShardID]int64
	// Sent is the position of the last message sent to another shard.
	Sent map[model.ShardID]int64
	// Crashed means that the last owner did not release the shard. The stores do not set this
	// field. The engine sets it from its view of the nodes.
	Crashed bool
	// Tokens is the token mark of the shard, see TokenMark. No earlier owner has given out a higher
	// fencing token.
	Tokens int64
	// Foreign says that another process owned the shard last, or an earlier incarnation of this
	// process. The engine sets it.
	Foreign bool
	// Handed says that the engine need not wait for workers that still hold runs or claims of the
	// last owner. Either the owner is alive and has handed the shard over, or its workers have
	// ended with it. The engine sets it.
	Handed bool
}

// LaneRef names a fence.
type LaneRef struct {
	Node  model.NodeID
	Lane  int
	Epoch int64
}

// RunKey is the primary key of a run.
type RunKey struct {
	Shard model.ShardID
	Run   model.RunID
}

// Compare orders keys by shard and run.
func (k RunKey) Compare(o RunKey) int {
	return cmp.Or(cmp.Compare(k.Shard, o.Shard), k.Run.Compare(o.Run))
}

// RunHead identifies a runnable run before its owner loads it.
type RunHead struct {
	RunKey
	Address model.Address
}

// Execution is the row of a run.
type Execution struct {
	Shard   model.ShardID
	Start   model.Start
	Outcome model.Outcome // Status is Running while open
	// Current means that this is the last run of its address.
	Current bool
	// Parked says that the run waits for something from outside. Waits says for what.
	Parked bool
	Waits  []model.Reason
	// Blocked is set while the run cannot continue without a change by an operator or a deployment.
	Blocked *model.Reason
}

// Run is what the engine needs to continue a run.
type Run struct {
	Execution *Execution // nil when there is none
	Events    []model.Event
	More      bool // there may be more events
	Timers    []Timer
}

// RunDetails is what a description of a run shows.
type RunDetails struct {
	Execution *Execution    // nil when there is none
	Labels    []model.Label // the present labels, sorted by name
	Last      int64         // the highest position of the stored events, as LastEvent returns it
	// Timers are the open timers, ordered by id. Tasks says that a stored event has scheduled a
	// task. Both are set only for open runs.
	Timers []Timer
	Tasks  bool
}

// Key returns the key of the run.
func (d *RunDetails) Key() RunKey {
	return RunKey{Shard: d.Execution.Shard, Run: d.Execution.Start.Run}
}

// Size returns roughly how many bytes the bodies of the rows of the run have.
func (r *Run) Size() (n int) {
	if x := r.Execution; x != nil {
		n = x.Start.Input.Size() + x.Outcome.Output.Size()
		for i := range x.Start.Carried {
			n += x.Start.Carried[i].Size()
		}
	}
	for i := range r.Events {
		n += r.Events[i].Size()
	}
	return n
}

// Unreadable fills in the values of the columns of a run whose body cannot be decoded. A listing
// shows the run as blocked with the reason, and continues.
func (x *Execution) Unreadable(start model.Start, status model.Status, why error) {
	x.Start, x.Outcome = start, model.Outcome{Status: status}
	blocked := model.Unreadable(why)
	x.Blocked = &blocked
}

// Unread returns a placeholder for the current run of an address whose row cannot be decoded. The
// placeholder is parked, so the engine does not load the run without a reason. A caller that needs
// the run loads it and gets the error.
func Unread(shard model.ShardID, a model.Address, why error) Execution {
	x := Execution{Shard: shard, Current: true, Parked: true}
	x.Unreadable(model.Start{Address: a}, model.Running, why)
	return x
}

// Reason returns the code of the main reason why an open run does not move, as far as the store
// knows. It is empty for a closed run.
func (x *Execution) Reason() model.ReasonCode {
	if x.Outcome.Status.Closed() {
		return ""
	}
	return MainReason(x.Parked, x.Waits, x.Blocked)
}

// MainReason returns the code by which queries find a run with this state. A code that is not a
// plain word cannot be queried.
func MainReason(parked bool, waits []model.Reason, blocked *model.Reason) model.ReasonCode {
	code := model.WaitTurn
	switch {
	case blocked != nil:
		code = blocked.Code
	case parked && len(waits) > 0:
		code = waits[0].Code
	}
	if code == "" || len(code) > 64 || strings.IndexFunc(string(code), func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) >= 0 {
		return model.WaitTurn
	}
	return code
}

// Timer is an open timer of a run.
type Timer struct {
	Shard model.ShardID
	Run   model.RunID
	ID    string
	Due   model.Time
	// Address is the address of the run. With it the engine serves due timers fairly between
	// tenants and types, and finds their runs.
	Address model.Address
}

// TimerMark is a position in the order of timers.
type TimerMark struct {
	Due model.Time
	Run model.RunID
	ID  string
}

// MessageRow is a message in transit. Seq counts from 1 without a gap for each pair of shards.
type MessageRow struct {
	To, From model.ShardID
	Seq      int64
	Message  model.Message
	// Damaged is set if the body cannot be read. In that case Message has only the values of the
	// columns, which may be all empty.
	Damaged *model.Damaged
}

// InboxRow is a request of a process that does not own the shard.
type InboxRow struct {
	Shard   model.ShardID
	ID      model.RunID // UUIDv7 of the request; orders the requests of a sender
	Message model.Message
	// NotBefore defers a request that cannot be served now, for example because its address is
	// quarantined. It is zero for a new request and model.MaxTime for a dead letter.
	NotBefore model.Time
	// Seen means that the answer to the request is remembered. The owner has served the request,
	// and only this row is left.
	Seen bool
	// Vacant means that the address of the request had no run when LoadInbox read the row. So the
	// owner need not read the address for a start. A store may leave it false.
	Vacant bool
	// Damaged is set if the body cannot be read. In that case Message has only the values of the
	// columns, which may be all empty.
	Damaged *model.Damaged
}

// RequestKey names a remembered request.
type RequestKey struct {
	Shard   model.ShardID
	Address model.Address
	ID      string
}

// Reply is the remembered answer to a request.
type Reply struct {
	RequestKey
	At   model.Time
	Body []byte
	// Damaged is set instead of the body if the body cannot be read.
	Damaged *model.Damaged
}

// Awaited is what callers of a process wait for.
type Awaited struct {
	Requests []RequestKey // callers wait for the answers
	Runs     []RunKey     // callers wait for the ends
	// Addresses are the addresses of starts whose callers wait for the end of the run, but do not
	// know the id of the run yet.
	Addresses []AddressKey
}

// Answers are the awaited rows that a store has.
type Answers struct {
	Replies []Reply
	// Ended are the awaited runs that are closed, and the current runs of the awaited addresses
	// that are closed. The current run of an address need not be the run that the caller started.
	Ended []Execution
}

// Query selects executions.
type Query struct {
	Tenant    string
	Workflows []string       // any of these; empty for all
	Key       string         // exact; empty for all
	KeyPrefix string         // empty for all
	Statuses  []model.Status // any of these; empty for all
	// Reasons selects open runs whose main reason (see Execution.Reason) is any of these. Empty
	// means all.
	Reasons []model.ReasonCode
	// StartedFrom and StartedTo are the half-open interval of start times. A zero time means no
	// bound.
	StartedFrom, StartedTo model.Time
	// ClosedFrom and ClosedTo are the half-open interval of closing times. If one of them is set,
	// the query selects no open runs.
	ClosedFrom, ClosedTo model.Time
	// Labels are conditions that must all hold.
	Labels []model.LabelCondition
	// AllRuns includes earlier runs of a chain.
	AllRuns bool
	Limit   int
	// After is the last row of the page before. The page continues after it.
	After PageMark
}

// TallyBy says by which properties a tally groups executions. If none is set, all executions are in
// one group.
type TallyBy struct{ Workflow, Status, Reason bool }

// TallyGroup is how many executions of a tally have the same properties. A property that the tally
// does not group by is zero.
type TallyGroup struct {
	Workflow string
	Status   model.Status
	Reason   model.ReasonCode // as Execution.Reason returns it
	Count    int64
}

// Tally counts executions in groups.
type Tally struct {
	By     TallyBy
	Groups []TallyGroup
	at     map[TallyGroup]int
}

// Add counts n executions with these properties.
func (t *Tally) Add(g TallyGroup, n int64) {
	if !t.By.Workflow {
		g.Workflow = ""
	}
	if !t.By.Status {
		g.Status = 0
	}
	if !t.By.Reason {
		g.Reason = ""
	}

	g.Count = 0
	i, ok := t.at[g]
	if !ok {
		if t.at == nil {
			t.at = map[TallyGroup]int{}
		}
		i = len(t.Groups)
		t.at[g], t.Groups = i, append(t.Groups, g)
	}
	t.Groups[i].Count += n
}

// PageMark is a position in a listing, newest start first.
type PageMark struct {
	Started model.Time
	Run     model.RunID
}

// Page is one page of a listing.
type Page struct {
	Executions []Execution
	// More is set if there are further rows.
	More bool
}

// ExpiredRequest asks for runs that may be removed.
type ExpiredRequest struct {
	Shards []model.ShardID
	// ClosedBefore is the limit for runs that have no removal time of their own: these runs may be
	// removed if they were closed before ClosedBefore. A run with its own removal time may be
	// removed if that time is before Now.
	ClosedBefore, Now model.Time
	// After is where the walk continues: the Next of the previous call, or zero for the beginning.
	After RunKey
	// Limit bounds how many runs the walk looks at. It also bounds how many runs with their own
	// removal time are returned.
	Limit int
}

// Expired is a page of runs that may be removed.
type Expired struct {
	// Runs has at most Limit runs with their own removal time first, and then the runs that the
	// walk has found.
	Runs []RunHead
	// Walked is the number of runs that the walk has looked at.
	Walked int
	// Next is where the walk stopped. It is zero if the walk has reached the end.
	Next RunKey
}

// SweepRequest bounds one sweep.
type SweepRequest struct {
	Shards         []model.ShardID // owned shards
	RequestsBefore model.Time
	// Answered removes remembered answers whose callers have received them and cannot ask again.
	// They may belong to any shard. Limit does not bound their number.
	Answered []RequestKey
	// LogsBefore removes log lines of tasks from before this time. Zero keeps all of them.
	LogsBefore model.Time
	// SettingsBefore removes tombstones of settings from before this time. Zero keeps all of them.
	// Settings belong to no shard, so any node may remove tombstones.
	SettingsBefore model.Time
	// DeadLettersBefore removes dead letters whose request was made before this time. Zero keeps
	// all of them.
	DeadLettersBefore model.Time
	// PeerMailBefore removes notes between nodes that were written before this time. Zero keeps all
	// of them. Notes belong to no shard, so any node may remove them.
	PeerMailBefore model.Time
	// AuditBefore removes entries of the log of administrative actions from before this time. Zero
	// keeps all of them. The entries belong to no shard, so any node may remove them.
	AuditBefore model.Time
	// ReportsBefore removes replay reports from before this time. Zero keeps all of them. Reports
	// belong to no shard, so any node may remove them.
	ReportsBefore model.Time
	Limit         int
}

// OldestID returns an id that is not greater than any UUIDv7 created at the time or later.
func OldestID(t model.Time) (id model.RunID) {
	ms := uint64(max(t, 0)) / 1000
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}
