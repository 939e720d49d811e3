package model

// MessageKind says what a message asks of its receiver. The numbers are stored and never reused.
type MessageKind uint8

// Kinds of messages. The names with a capital letter are fields of [Message].
const (
	// start To with Input; From gets the outcome when From.ID is set
	MessageStart   MessageKind = 1
	MessageWatch   MessageKind = 2 // tell From the outcome of To
	MessageClosed  MessageKind = 3 // the outcome of a child or watched execution, for step ID of To
	MessageSignal  MessageKind = 4 // Name, Input
	MessageSettle  MessageKind = 5 // promise Name: Input or Failure
	MessageCancel  MessageKind = 6 // Failure.Message is the reason
	MessageNothing MessageKind = 7 // has no effect; it fills a gap in the sequence of a sender

	MessageUpdate MessageKind = 8 // Name, Input; the code gives the answer later
	MessageAnswer MessageKind = 9 // to step ID of To, the answer to its message: Input or Failure
	// end the run without asking its code; Failure.Message is the reason
	MessageTerminate MessageKind = 10
	MessagePause     MessageKind = 11 // pause the run; Failure.Message is the reason
	MessageResume    MessageKind = 12
	MessageDelete    MessageKind = 13 // remove Runs of To; open runs only if Force is set
	MessageQuery     MessageKind = 14 // ask the code Name with Input; changes nothing
	MessageReport    MessageKind = 15 // a worker of another node reports how a claim ended
	MessageRequeue   MessageKind = 17 // an operation on a dead task; see DeadTask
	MessageWrite     MessageKind = 20 // what a claim writes outside the history

	// call operation Name of entity To with Input; the sender gets the result
	MessageCall MessageKind = 21
	MessageLock MessageKind = 22 // lock entity To for section From
	// entity From is locked for section ID of To: Epoch is the fencing token
	MessageGrant MessageKind = 23
	// section From ends: it gives back the lock of To, or no longer waits for it
	MessageRelease MessageKind = 24
	// an operator takes the lock of entity To away from its section, even if that section still
	// runs; if Epoch is set, only the lock with that fencing token
	MessageUnlock MessageKind = 25
	// an operator lists the mailbox of entity To, applies operation Name to item ID of it, or edits
	// the state of the entity
	MessageMailbox MessageKind = 26
)

// LastMessageKind is the highest kind that this build knows.
const LastMessageKind = MessageMailbox

// WatchChanges is the Name of a MessageWatch that watches for changes, not for the end of an
// execution. The node of the watcher gets a hint after every commit that changes the execution.
const WatchChanges = "changes"

var messageNames = [...]string{
	MessageStart: "start", MessageWatch: "watch", MessageClosed: "closed", MessageSignal: "signal",
	MessageSettle: "settle", MessageCancel: "cancel", MessageNothing: "nothing", MessageUpdate: "update", MessageAnswer: "answer",
	MessageTerminate: "terminate", MessagePause: "pause", MessageResume: "resume", MessageDelete: "delete", MessageQuery: "query",
	MessageReport: "report", MessageRequeue: "requeue", MessageWrite: "write", MessageCall: "call", MessageLock: "lock", MessageGrant: "grant",
	MessageRelease: "release", MessageUnlock: "unlock", MessageMailbox: "mailbox",
}

// String returns the name that the CLI shows.
func (k MessageKind) String() string {
	if int(k) < len(messageNames) && messageNames[k] != "" {
		return messageNames[k]
	}
	return "unknown"
}

// Known reports whether this build understands the kind.
func (k MessageKind) Known() bool { return int(k) < len(messageNames) && messageNames[k] != "" }

// Message travels from one address to another, or from a client to an address. Between addresses, a
// message is a row. The commit of the sender writes it, and a commit of the receiver consumes it
// exactly once. Messages of one sending shard are consumed in order.
type Message struct {
	Kind MessageKind `cbor:"1,keyasint"`

	// The small fields stand together, because a client allocates a message for each request.

	Status Status            `cbor:"9,keyasint,omitempty"`
	Reuse  ReusePolicy       `cbor:"11,keyasint,omitempty"`
	Policy ParentClosePolicy `cbor:"12,keyasint,omitempty"`
	// Keep says that no sender waits for the answer. If the receiver refuses the message, the
	// engine keeps it as a dead letter, with the reason in ID.
	Keep bool `cbor:"22,keyasint,omitempty"`
	// OneWay says that the caller does not wait for the result of a call. The owner answers as soon
	// as the call is stored.
	OneWay bool `cbor:"42,keyasint,omitempty"`
	// Brief says that a call is made at most once. If its owner dies, the call is lost: no other
	// owner makes it again. The engine keeps a brief call of the owner's own process only in
	// memory.
	Brief bool `cbor:"43,keyasint,omitempty"`
	// Drawn says that the engine generated the request id, so that no other request can have it. It
	// is not stored.
	Drawn bool `cbor:"-"`
	// Force removes Runs whatever their state is, without reading them.
	Force bool `cbor:"60,keyasint,omitempty"`
	// Watches says that Node also wants a hint at the end of the execution that a start begins or
	// finds.
	Watches bool `cbor:"67,keyasint,omitempty"`

	To Address `cbor:"2,keyasint"`
	// ToRun restricts the message to one run. A later run of the same key does not apply the
	// message.
	ToRun RunID `cbor:"3,keyasint,omitzero"`
	// From is the sender and its step; zero for clients.
	From    Link     `cbor:"4,keyasint,omitzero"`
	ID      string   `cbor:"5,keyasint,omitempty"`
	Name    string   `cbor:"6,keyasint,omitempty"`
	Input   Payload  `cbor:"7,keyasint,omitzero"`
	Failure *Failure `cbor:"8,keyasint,omitempty"`
	// RequestID lets the receiver recognise repeated messages of a client. The receiver remembers
	// it for a retention time.
	RequestID string `cbor:"10,keyasint,omitempty"`
	// With are signals that come with a start (signal-with-start). They are delivered in the same
	// commit.
	With []Event `cbor:"13,keyasint,omitempty"`
	// Node is the process that wants a hint; zero for none.
	Node NodeID `cbor:"14,keyasint,omitzero"`
	// Labels are the labels of the run that a start begins, sorted by name.
	Labels []Label `cbor:"18,keyasint,omitempty"`
	// Past is the past of the run that a start begins; nil for a run without a past.
	Past *Past `cbor:"20,keyasint,omitempty"`
	// Runs are the runs to delete.
	Runs []RunID `cbor:"21,keyasint,omitempty"`
	// Task is set if the start begins a task that stands alone.
	Task *TaskSpec `cbor:"23,keyasint,omitempty"`
	// Report is how a claim ended.
	Report *TaskReport `cbor:"24,keyasint,omitempty"`
	// DeadTask is an operation on a dead task.
	DeadTask *DeadTaskOrder `cbor:"30,keyasint,omitempty"`
	// Fresh is the id of the run that a start begins, if the sender must know it; zero when the
	// receiver generates one.
	Fresh RunID `cbor:"31,keyasint,omitzero"`
	// Trace is the trace context (W3C traceparent) of the sender; empty when it is not traced.
	Trace string `cbor:"32,keyasint,omitempty"`
	// Write is what a claim writes.
	Write *TaskWrite `cbor:"40,keyasint,omitempty"`
	// Section is the step of From's run that holds the lock of the called entity; empty outside of
	// sections.
	Section string `cbor:"41,keyasint,omitempty"`
	// Epoch is the fencing token of a grant, or of the lock that an unlock takes away. In an
	// unlock, 0 means any lock.
	Epoch int64 `cbor:"44,keyasint,omitempty"`
	// Deaths is how many processes a call that waits in a mailbox may have killed. By is the node
	// that has raised the number last. It did so before it made the call itself.
	Deaths int    `cbor:"45,keyasint,omitempty"`
	By     NodeID `cbor:"46,keyasint,omitzero"`
	// Asked is a digest of a client's request. It is set in messages that the engine builds from a
	// history or a dead task. If the client repeats such a request, the message may differ, because
	// the stored data may have changed. So Asked takes the place of the content when requests are
	// compared.
	Asked []byte `cbor:"48,keyasint,omitempty"`
	// Parent is the step that waits for the last of Runs, if the message removes them by force and
	// the sender knows that step; nil otherwise.
	Parent *Link `cbor:"61,keyasint,omitempty"`
	// Terms apply to the execution that a start begins; nil for none.
	Terms *Terms `cbor:"62,keyasint,omitempty"`
	// Lone is how many of Deaths come from nodes that were about to make this call and no other
	// call of the entity.
	Lone int `cbor:"64,keyasint,omitempty"`
	// Exported is a fingerprint of the entity row that the client exported before a forced delete.
	// If the row has changed since, the owner does not remove it. It is empty in messages of older
	// builds.
	Exported []byte `cbor:"65,keyasint,omitempty"`
	// Linked is the connection between two nodes that has carried a copy of the request before. The
	// sender does not know whether the owner got that copy. Linked is zero if no connection has
	// carried a copy.
	Linked RunID `cbor:"66,keyasint,omitzero"`
	// Lost is how many workers of other processes have disappeared while they had this call of an
	// entity. It does not count workers that died together with the owner of the entity.
	Lost int `cbor:"68,keyasint,omitempty"`
}

// Order reports whether the message is an order: a terminate, a cancel, a delete, an unlock, a
// request about a mailbox, or a start with a past. If the execution or entity is quarantined, the
// owner refuses orders immediately, even if they come from another node.
func (m *Message) Order() bool {
	switch m.Kind {
	case MessageTerminate, MessageCancel, MessageDelete, MessageUnlock, MessageMailbox:
		return true
	case MessageStart:
		return m.Past != nil
	default:
		return false
	}
}

// Size estimates the bytes that the message takes in memory and on disk.
func (m *Message) Size() int {
	n := 96 + len(m.To.Key) + len(m.ID) + len(m.Name) + m.Input.Size() + len(m.RequestID) + len(m.Section) + len(m.Asked)
	for i := range m.With {
		n += m.With[i].Size()
	}
	for i := range m.Labels {
		n += m.Labels[i].Size()
	}
	if m.Past != nil {
		n += m.Past.Size()
	}
	if m.Report != nil {
		n += 128 + m.Report.Output.Size()
	}
	if m.Write != nil {
		n += m.Write.Size()
	}

	if l := m.DeadTask; l != nil {
		n += 128 + len(l.Ref.Address.Key) + len(l.Ref.ID)
		if l.Input != nil {
			n += l.Input.Size()
		}
	}

	return n + len(m.Runs)*len(RunID{})
}
