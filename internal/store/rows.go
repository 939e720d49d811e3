package store

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// NodeInfo describes a process that runs the engine.
type NodeInfo struct {
	ID model.NodeID
	// Host identity: together they let a process on the same host prove that this one is gone.
	Host      string // name of the machine
	BootID    string // changes with every boot of the machine
	Namespace string // in which its process id and start time have a meaning
	PID       int
	PIDStart  int64 // start time of the process in clock ticks since boot
	Version   string

	// Sole tells that no other process has the store open. Register then removes every other node,
	// whatever its lease says: it belongs to a process that is gone, or to an earlier life of this
	// one. It is not stored. A store that is shared refuses it.
	Sole bool
}

// Registration is the result of Register.
type Registration struct {
	Epoch int64
	Now   model.Time // store time
}

// Member is a registered node as others see it.
type Member struct {
	NodeInfo
	Epoch   int64
	Expires model.Time
	// Draining nodes keep their lease and want no shards.
	Draining bool
	// Serves is what the workers of the node can run.
	Serves []Served
}

// Served is a workflow that a worker can run or, when Worker is set, a worker that executes tasks.
type Served struct {
	Tenant, Workflow string
	Version          string `json:",omitempty"` // of its code, when it has one
	Pinned           bool   `json:",omitempty"` // it continues only runs of its version

	// Worker executes tasks of the activities on the queues, so many at once; Draining begins none
	// any more.
	Worker     string   `json:",omitempty"`
	Queues     []string `json:",omitempty"`
	Activities []string `json:",omitempty"`
	Slots      int      `json:",omitempty"`
	Draining   bool     `json:",omitempty"`

	// Limits and Breakers are the names that the code of the activities gives.
	Limits   []string `json:",omitempty"`
	Breakers []string `json:",omitempty"`
}

// EncodeServed is a list of what is served as a text, for a column.
func EncodeServed(s []Served) string {
	if len(s) == 0 {
		return ""
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // there are only texts in it
	}
	return string(text)
}

// DecodeServed reads the text. What cannot be read, because a newer version wrote it, counts as
// nothing.
func DecodeServed(text string) (s []Served) {
	if text != "" && json.Unmarshal([]byte(text), &s) != nil {
		return nil
	}
	return s
}

// ShardOwner is a row of the shard table. A zero Node means free.
type ShardOwner struct {
	Shard model.ShardID
	Node  model.NodeID
	Epoch int64
}

// RenewRequest renews a lease.
type RenewRequest struct {
	Node     model.NodeID
	Epoch    int64
	TTL      time.Duration
	Draining bool
	// Shards are those the node owns; the view tells whether mail waits for them.
	Shards []model.ShardID
	// Serves is what the workers of the node can run now.
	Serves []Served
}

// View is the cluster at one moment of store time.
type View struct {
	Now     model.Time
	Members []Member
	Owners  []ShardOwner // every shard, in order
	// Mail tells that messages or inbox rows wait for shards of the request.
	Mail bool
	// PeerMail tells that letters of other nodes wait for the node of the request.
	PeerMail bool
	// Settings is how far the counter of settings is: whoever has seen less has something to load.
	Settings int64
}

// AcquiredShard is a shard that has just become ours, with what travels with it.
type AcquiredShard struct {
	Shard model.ShardID
	// Received is the position up to which messages from another shard have been consumed.
	Received map[model.ShardID]int64
	// Sent is the position of the last message sent to another shard.
	Sent map[model.ShardID]int64
	// Crashed tells that its last owner did not give it up. No store sets it: the engine does, from
	// what it knows of the nodes.
	Crashed bool
	// Tokens is the mark of the shard: earlier owners have given out fencing tokens up to it at
	// most.
	Tokens int64
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

// RunHead is what an owner needs to know of a runnable run before it loads it.
type RunHead struct {
	RunKey
	Address model.Address
}

// Execution is the row of a run.
type Execution struct {
	Shard   model.ShardID
	Start   model.Start
	Outcome model.Outcome // Status is Running while open
	// Current tells that this is the last run of its address.
	Current bool
	// Parked runs wait for something from outside; Waits says for what.
	Parked bool
	Waits  []model.Reason
	// Blocked is set while the run cannot continue until someone changes something.
	Blocked *model.Reason
}

// Run is a run with what it takes to continue it.
type Run struct {
	Execution *Execution // nil when there is none
	Events    []model.Event
	More      bool // there may be more events
	Timers    []Timer
}

// Unreadable is the row of a run whose body cannot be understood, as far as its columns tell: a
// listing shows it with the reason, and goes on.
func (x *Execution) Unreadable(start model.Start, status model.Status, why error) {
	x.Start, x.Outcome = start, model.Outcome{Status: status}
	blocked := model.Unreadable(why)
	x.Blocked = &blocked
}

// Unread stands for the current run of an address when its row cannot be understood. It counts as
// parked: nobody takes it up unasked, and whoever needs it reads it and hears why that fails.
func Unread(shard model.ShardID, a model.Address, why error) Execution {
	x := Execution{Shard: shard, Current: true, Parked: true}
	x.Unreadable(model.Start{Address: a}, model.Running, why)
	return x
}

// Reason is the code of the main reason why an open run does not move, as far as the store knows;
// empty for a closed one.
func (x *Execution) Reason() model.ReasonCode {
	if x.Outcome.Status.Closed() {
		return ""
	}
	return MainReason(x.Parked, x.Waits, x.Blocked)
}

// MainReason is the code that a run of such a mark is found by. A code that is no plain word cannot
// be looked for.
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
	// Address of the run, so that due timers can be served fairly between tenants and types, and
	// their runs be found.
	Address model.Address
}

// TimerMark is a position in the order of timers.
type TimerMark struct {
	Due model.Time
	Run model.RunID
	ID  string
}

// MessageRow is a message on its way. Seq counts from 1 without a gap for each pair of shards.
type MessageRow struct {
	To, From model.ShardID
	Seq      int64
	Message  model.Message
	// Damaged is set when the body cannot be read; the message then has what is known of it, which
	// may be nothing.
	Damaged *model.Damaged
}

// InboxRow is a request of a process that does not own the shard.
type InboxRow struct {
	Shard   model.ShardID
	ID      model.RunID // UUIDv7 of the request; order per sender
	Message model.Message
	// NotBefore puts a request off that could not be served because its address is quarantined.
	// Zero for a fresh one, model.MaxTime for one that was refused and is kept.
	NotBefore model.Time
	// Seen tells that the request id is remembered: it has been served, only its row is left.
	Seen bool
	// Damaged is set when the body cannot be read; the message then has what is known of it, which
	// may be nothing.
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
	// Damaged is set in place of the body when that cannot be read.
	Damaged *model.Damaged
}

// Query selects executions.
type Query struct {
	Tenant    string
	Workflows []string       // any of these; empty for all
	Key       string         // exact; empty for all
	KeyPrefix string         // empty for all
	Statuses  []model.Status // any of these; empty for all
	// Reasons selects open runs whose main reason, as Execution.Reason tells it, is any of these;
	// empty for all.
	Reasons []model.ReasonCode
	// Started is the half-open interval of start times; zero bounds are open.
	StartedFrom, StartedTo model.Time
	// Closed is that of the times at which runs were closed; with a bound, open runs are not
	// selected.
	ClosedFrom, ClosedTo model.Time
	// Labels must all hold.
	Labels []model.LabelCondition
	// AllRuns includes earlier runs of a chain.
	AllRuns bool
	Limit   int
	// After continues behind the last row of the page before.
	After PageMark
}

// PageMark is a position in a listing, newest start first.
type PageMark struct {
	Started model.Time
	Run     model.RunID
}

// Page is one page of a listing.
type Page struct {
	Executions []Execution
	// More is set when there are further rows behind the last one.
	More bool
}

// ExpiredRequest asks for runs that may be removed.
type ExpiredRequest struct {
	Shards []model.ShardID
	// ClosedBefore is for runs without a time of their own, Now for those that have one.
	ClosedBefore, Now model.Time
	// After is where the walk goes on: Next of the call before, zero for the beginning.
	After RunKey
	// Limit bounds how many runs the walk looks at, and how many of those with a time of their own
	// are returned.
	Limit int
}

// Expired is a page of runs that may be removed.
type Expired struct {
	// Runs are those with a time of their own first, at most Limit of them, and then what the walk
	// has found.
	Runs []RunHead
	// Walked is how many runs the walk has looked at.
	Walked int
	// Next is where it stopped; zero when it has reached the end.
	Next RunKey
}

// SweepRequest bounds one sweep.
type SweepRequest struct {
	Shards         []model.ShardID // owned shards
	RequestsBefore model.Time
	// Answered removes remembered answers whose callers have them and cannot ask again. They may
	// belong to any shard, and Limit does not bound them.
	Answered []RequestKey
	// LogsBefore removes log lines of tasks that are older; zero for none.
	LogsBefore model.Time
	// SettingsBefore removes tombstones of settings that are older; zero for none. They belong to
	// no shard: any node may do it.
	SettingsBefore model.Time
	// LettersBefore removes dead letters whose request was made before; zero keeps them.
	LettersBefore model.Time
	// PeerMailBefore removes letters between nodes that were written before; zero keeps them. They
	// belong to no shard: any node may do it.
	PeerMailBefore model.Time
	Limit          int
}

// OldestID is not after any UUIDv7 that was made at the time or later.
func OldestID(t model.Time) (id model.RunID) {
	ms := uint64(max(t, 0)) / 1000
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}
