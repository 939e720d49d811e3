package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// input is something that the lane applies to one address. Each kind of input is a struct of its
// own that embeds inputBase and overrides the methods for which the kind needs its own behaviour.
// The lane keeps an input until its batch is committed. If the store refuses the batch, the lane
// applies the inputs again.
type input interface {
	// base returns the part that all inputs have.
	base() *inputBase
	// source returns where a message came from. It is nil for inputs that carry no message.
	source() *source
	// task returns the id of the task that the input is about. It returns "" if the input is about
	// no task.
	task() string
	// size returns roughly how many bytes the input takes in memory.
	size() int

	// ready reports whether the lane knows enough to apply the input. If the lane first has to
	// read something, ready asks for that read.
	ready(l *Lane, e *entry) bool
	// apply decides what the input does and writes the decision into the open batch.
	apply(l *Lane, now model.Time, e *entry)
	// applyPoisoned handles the input while its address is quarantined.
	applyPoisoned(l *Lane, now model.Time, e *entry)
	// proposal reports whether the board has asked for the input: a claim, or a deadline.
	proposal() bool
	// refuse tells the caller or worker that waits for an answer that the lane does not apply the
	// input.
	refuse(l *Lane, err error)
}

// inputBase is the part that all inputs have. Its methods are the defaults of the interface.
type inputBase struct {
	address *model.Address // points into the message or the entry, so that inputs stay small
	run     model.RunID    // the run that the input is about; zero when it is about the address
	since   model.Time     // when the lane took it
	held    int            // bytes that budget.used includes for it
	kept    bool           // budget.kept includes these bytes instead
	lone    bool           // it gets a batch of its own, see lone.go
}

func (b *inputBase) base() *inputBase { return b }

func (b *inputBase) source() *source { return nil }

func (b *inputBase) task() string { return "" }

func (b *inputBase) size() int { return inputBytes }

func (b *inputBase) proposal() bool { return false }

// source says where a message came from and which caller waits for its answer.
type source struct {
	message *model.Message
	pair    *pair       // the channel that brought it, when another shard sent it
	seq     int64       // its position in that channel
	inbox   model.RunID // its inbox row, when another process sent it
	token   any         // the caller in this process that gets the answer
	passed  bool        // the open batch sends it, see passOn
	// awaits says that the caller does not want the answer to the message itself. The caller waits
	// for the end of the run that the message starts, or for the answer of the code.
	awaits bool
}

// isRelied reports whether another shard or process relies on this lane to keep the message,
// because the sender drops its copy once the message has arrived here.
func (s *source) isRelied() bool { return s.remote() || s.passed }

// remote reports whether the message came from another shard or another process. To consume such a
// message, the lane has to write.
func (s *source) remote() bool { return s.pair != nil || !s.inbox.IsZero() }

// isRepeated reports whether the message has been applied before. After a refused batch, the lane
// can have the same message of a channel twice.
func (s *source) isRepeated() bool { return s.pair != nil && s.seq != s.pair.applied+1 }

// messageInput is a message of a client, of another shard or of another process.
type messageInput struct {
	inputBase
	origin source
	lookup lookup

	// The dead task that the message is about; nil before the lane has read it.
	deadTask *deadTaskRead
	// What became of the claim of a report; nil if the lane has not asked the store.
	fate   *core.Fate
	drops  *core.Item // the call that the message drops, see manage.go
	erased *erasure   // for a removal by force: the entity as the lane has read it; nil before

	barred      bool // it is a removal by force that the store has refused
	refusedOnce bool // it is an order for a quarantined address, and has been refused once
}

// lookup is what the lane knows about earlier uses of the request id of a message.
type lookup struct {
	fresh   bool  // the caller says that the id has never been used before
	seen    bool  // the store says that an answer is remembered under the id
	checked bool  // the lane has looked for the remembered answer
	served  int32 // entry.remembered at that time
}

// erasure is what the lane has read of an entity that a message removes by force.
type erasure struct {
	mailbox []model.MailboxItem
	print   []byte // fingerprint of its row
	version int32  // of the entry at the time of the read
}

func (in *messageInput) source() *source { return &in.origin }

func (in *messageInput) size() int { return inputBytes + in.origin.message.Size() }

// task returns the task that a report is about. If the execution is a task without a workflow, task
// returns this only task, because the message may cancel or terminate it.
func (in *messageInput) task() string {
	m := in.origin.message
	switch {
	case m.Kind == model.MessageReport:
		return m.Report.Ref.ID
	case isStandalone(*in.address):
		return model.TaskStep
	}
	return ""
}

// is reports whether the message has the kind.
func (in *messageInput) is(k model.MessageKind) bool { return in.origin.message.Kind == k }

// once reports whether the lane must notice a repetition of the request. A plain start needs no
// remembered answer, because its key is its identity. A query changes nothing.
func (in *messageInput) once() bool {
	m := in.origin.message
	switch {
	case m.RequestID == "" || m.Kind == model.MessageQuery:
		return false
	case m.Kind != model.MessageStart:
		return true
	}
	return !in.origin.inbox.IsZero() || len(m.With) > 0 || m.Past != nil || m.Reuse != model.ReturnExisting
}

// early reports whether the input must wait until the start of the run is committed. There are two
// reasons to wait. A batch never starts and ends the same run. And a worker gets a new run with all
// signals that the run starts with, so an operator must not drop one of them before.
func (in *messageInput) early(e *entry) bool {
	return e.pending.fresh && (in.is(model.MessageTerminate) || in.is(model.MessageCancel) && e.isPaused() || in.is(model.MessageMailbox))
}

// sure reports whether the lane knows that the request has not been served. If the lane has served
// another request of the address since the lookup, the lookup proves nothing.
func (in *messageInput) sure(l *Lane, e *entry) bool {
	return in.lookup.fresh || in.lookup.checked && in.lookup.served == e.remembered ||
		!in.lookup.seen && l.eras.isNew(in.origin.message.RequestID)
}

// isWrite reports whether the message is data that a claim writes next to the history.
func (in *messageInput) isWrite() bool { return in.is(model.MessageWrite) }

// isForced reports whether the input removes runs or an entity by force, even if their rows cannot
// be read. After the store has refused the removal, isForced returns false, and the quarantine
// applies to the removal as well. Otherwise the lane would repeat the removal forever.
func (in *messageInput) isForced() bool {
	return in.is(model.MessageDelete) && in.origin.message.Force && !in.barred
}

// isOrder reports whether two things are true: the input is an order of an operator or a request
// (see isRequest), and a caller in another process waits for the answer. The lane refuses such an
// input while its address is quarantined, as it does for callers in its own process.
func (in *messageInput) isOrder() bool {
	m := in.origin.message
	return !in.origin.inbox.IsZero() && (m.Order() || in.isRequest()) && !m.Node.IsZero() && !m.Keep
}

// isRequest reports whether the message is a signal or another request that only adds to a run. The
// lane does not remember the refusal of such a request under its id, because the same request may
// succeed when the quarantine is over.
func (in *messageInput) isRequest() bool {
	switch in.origin.message.Kind {
	case model.MessageSignal, model.MessageSettle, model.MessagePause, model.MessageResume:
		return true
	default:
		return false
	}
}

// isDeadTaskOrder reports whether the input is about a dead task. Only such inputs change dead
// tasks. The lane applies them one by one. Each input waits for the commit of the input before it,
// so that the lane always reads the current state of the dead task.
func (in *messageInput) isDeadTaskOrder() bool { return in.is(model.MessageRequeue) }

// needsDeadTask reports whether the lane needs the dead task to decide. The undo of a requeue goes
// to the address of the run that the requeue has started. If the dead task has another address, the
// undo only ends that run, and does not need the dead task.
func (in *messageInput) needsDeadTask() bool {
	m := in.origin.message
	return in.isDeadTaskOrder() && (m.DeadTask.Do != model.DeadTaskUndo || m.To == m.DeadTask.Ref.Address)
}

// report returns the claim that the message reports on. It returns nil if the message is no report.
func (in *messageInput) report() *model.ClaimRef {
	if in.is(model.MessageReport) {
		return &in.origin.message.Report.Ref
	}
	return nil
}

// isReported reports whether the store says that the claim of the report was reported before.
func (in *messageInput) isReported() bool { return in.fate != nil && in.fate.Reported }

// mailboxRead reports whether the lane has read the mailbox of the entity that this input removes.
// A mailbox that was read before the lane dropped the entry is out of date.
func (in *messageInput) mailboxRead(e *entry) bool {
	return in.erased != nil && in.erased.version == e.version
}

// mustRemember reports whether the lane remembers the answer to a request of this process.
func (in *messageInput) mustRemember(d *core.Decision) bool {
	return in.once() && !d.Pending && !d.Misused && !isTemporary(d.Answer.Failure)
}

// acknowledgedID returns the request id if the remembered answer is useless once the caller has the
// answer. It returns "" if the lane has to keep the remembered answer.
func (in *messageInput) acknowledgedID(d *core.Decision) string {
	o := &in.origin
	if !o.message.Drawn || o.token == nil || !o.inbox.IsZero() || !in.mustRemember(d) {
		return ""
	}
	return o.message.RequestID
}

// answerInput stores an answer that is known already: the code's answer to a query of another
// process, or the remembered answer for a step that repeats a request.
type answerInput struct {
	inputBase
	origin  source
	answer  *model.Answer
	misused bool // the request id belongs to another request
}

func (in *answerInput) source() *source { return &in.origin }

func (in *answerInput) size() int {
	return inputBytes + in.origin.message.Size() + in.answer.Output.Size()
}

// taskInput is the base of inputs about a task of a run.
type taskInput struct {
	inputBase
	id string
}

func (in *taskInput) task() string { return in.id }

func newTaskInput(e *entry, ref *model.TaskRef) taskInput {
	return taskInput{inputBase{address: &e.address, run: ref.Run}, ref.ID}
}

// newProposal returns the base of a proposal of the board.
func newProposal(e *entry, ref *model.TaskRef) taskInput {
	in := newTaskInput(e, ref)
	in.lone = e.tasks.apart != nil && e.tasks.apart[ref.ID] == ref.Run
	return in
}

// claimInput gives a task to a worker, as the board proposes.
type claimInput struct {
	taskInput
	worker queue.WorkerID
	name   string // of the worker
}

// reportInput is how a claim ended, as its worker reports it.
type reportInput struct {
	taskInput
	worker queue.WorkerID
	report *model.TaskReport
	fate   *core.Fate // the fate of the claim; nil when the store was not asked
}

// expiryInput says that a deadline of a task has passed, as the board sees it.
type expiryInput struct {
	taskInput
	held  bool // the task was claimed, as far as the board knew
	claim int64
	what  string // which deadline
}

// attachInput says that a worker that has just joined has a claim, or should have it.
type attachInput struct {
	taskInput
	claim  int64
	worker queue.WorkerID
	by     string // the name of a remote worker, which must be in the history
	has    bool   // the worker has the claim; if false, the claim never reached the worker
}

// progressInput is the progress of a claim, as its worker reports it.
type progressInput struct {
	taskInput
	claim    int64
	by       string // the name of a remote worker
	progress model.Payload
}

// turnInput is what a worker reports about a run that it holds.
type turnInput struct {
	inputBase
	turn   *model.Turn
	worker WorkerID
}

// releaseInput says that a worker wants to give up a parked run.
type releaseInput struct {
	inputBase
	turn   *model.Turn // only Run, Generation, Seen and Waits
	worker WorkerID
}

// removalInput removes closed runs of an address after their retention time.
type removalInput struct {
	inputBase
	runs []model.RunID
}

// handover is a claim on its way to the worker that executes it.
type handover struct {
	id       string
	claim    int64
	worker   queue.WorkerID
	progress model.Payload // the last progress of earlier attempts
}

// The fate of a claim says whether and how the claim has ended. When a worker repeats a report, the
// lane answers as it did the first time, because that answer may have been lost (E18). So the lane
// must know the fate of the claim. A run remembers its last claims. For older claims, and for runs
// that have ended and left memory, the lane reads the history in the store.

// claimReport is an input that reports on a claim.
type claimReport interface {
	input
	setFate(*core.Fate)
}

// isTemporary reports whether a refusal is not final, so that the same request may succeed later.
// This is so if there was no room, or if the code of the run was busy. The lane does not remember
// such a refusal under the request id.
func isTemporary(f *model.Failure) bool {
	return f != nil && (f.Kind == fault.Exhausted.String() || f.Type == model.FailureBusy)
}

// deadTaskRead is what the store has about a dead task.
type deadTaskRead struct {
	row *core.StoredDeadTask // nil when there is none
	err error                // why the lane cannot read it
}

// resultInput has the results of calls of an entity that a worker ran.
type resultInput struct {
	inputBase
	job *job
}

// settleInput answers lost calls of an entity, and gives the lock of the entity to the next section
// in the line.
type settleInput struct{ inputBase }

// asideInput moves unreadable items of a mailbox to the inbox. Other items of the entity continue.
type asideInput struct{ inputBase }

// suspectInput records that suspects are about to run, or sets them aside. A suspect is a call that
// may have killed the last owner of the shard.
type suspectInput struct{ inputBase }

// lossInput stores that workers have disappeared with calls of an entity, or sets these calls
// aside.
type lossInput struct {
	inputBase
	losses []core.Loss
	// The calls that the input has set aside. If the store refuses the batch, a call that existed
	// only in memory exists only here.
	aside []*core.Item
}

// quarantineInput stores why an address is quarantined.
type quarantineInput struct {
	inputBase
	why *model.Reason
}

// timerInput is a timer that is due: a timer of the code, the back-off of a step, the start time of
// the run, or the time-out of the execution.
type timerInput struct {
	inputBase
	id string
}
