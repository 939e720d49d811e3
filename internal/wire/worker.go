package wire

import (
	"time"

	"github.com/fxamacker/cbor/v2"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Protocol is the version of the native protocol that this build speaks, for workers and for other
// clients.
const Protocol = 1

// These windows bound how many bytes one side may send before the other side has read them. They
// have a fixed size. With windows of variable size, gRPC would measure the connection. On a
// connection that is not busy, that would cost a ping and a window update for nearly every message.
const (
	// CallWindow is how many bytes of a call may be sent before the other side has read them. A
	// single message may be larger.
	CallWindow = 1 << 20
	// ConnWindow is how many bytes of all calls of a connection may be sent before the other side
	// has received them.
	ConnWindow = 4 << 20
)

// WorkflowJoin builds the message for an offer to run workflows. Offers do not name the tenant,
// which is the tenant of the connection.
func WorkflowJoin(o *model.Offer) *pb.Join {
	return &pb.Join{Role: pb.Role_ROLE_WORKFLOWS, Name: o.Name, Version: o.Version, Kinds: o.Workflows, Pinned: o.Pinned, Slots: int64(o.Slots), Answers: true}
}

// ReadWorkflowJoin reads an offer.
func ReadWorkflowJoin(tenant string, j *pb.Join) (model.Offer, error) {
	o := model.Offer{Name: j.GetName(), Tenant: tenant, Workflows: j.GetKinds(), Pinned: j.GetPinned(), Version: j.GetVersion(), Slots: int(j.GetSlots())}
	for _, h := range j.GetHeldRuns() {
		run, err := ReadRun(h.GetRun())
		if err != nil {
			return o, err
		}
		o.Held = append(o.Held, model.HeldRun{Address: ReadAddress(tenant, h.GetAddress()), Run: run, Given: model.Time(h.GetGiven())})
	}
	return o, nil
}

// HeldRun builds the message for a run that a worker holds from a session that the server has
// lost.
func HeldRun(h model.HeldRun) *pb.HeldRun {
	return &pb.HeldRun{Address: Address(h.Address), Run: Run(h.Run), Given: int64(h.Given)}
}

// HeldClaim builds the message for a claim that a worker holds from a session that the server
// has lost.
func HeldClaim(ref model.ClaimRef) *pb.HeldClaim {
	return &pb.HeldClaim{Ref: TaskRef(ref.TaskRef), Claim: ref.Claim}
}

// TaskJoin builds the message for an offer to execute tasks.
func TaskJoin(o *model.TaskOffer) *pb.Join {
	return &pb.Join{
		Role: pb.Role_ROLE_TASKS, Name: o.Name, Version: o.Version, Kinds: o.Kinds, Queues: o.Queues, Slots: int64(o.Slots),
		Limits: o.Limits, Breakers: o.Breakers, TellsEnd: o.TellsEnd,
	}
}

// ReadTaskJoin reads an offer to execute tasks.
func ReadTaskJoin(tenant string, j *pb.Join) (model.TaskOffer, error) {
	o := model.TaskOffer{
		Name: j.GetName(), Tenants: []string{tenant}, Queues: j.GetQueues(), Kinds: j.GetKinds(), Slots: int(j.GetSlots()), Version: j.GetVersion(),
		Limits: j.GetLimits(), Breakers: j.GetBreakers(), TellsEnd: j.GetTellsEnd(),
	}
	for _, h := range j.GetHeldClaims() {
		ref, err := ReadClaimRef(tenant, h.GetRef(), h.GetClaim())
		if err != nil {
			return o, err
		}
		o.Held = append(o.Held, ref)
	}
	return o, nil
}

// EntityJoin builds the message for an offer of entities and services.
func EntityJoin(o *model.EntityOffer) *pb.Join {
	j := &pb.Join{Role: pb.Role_ROLE_ENTITIES, Name: o.Name, Version: o.Version, Slots: int64(o.Slots), Interruptible: true}
	for i := range o.Types {
		t := &o.Types[i]
		j.Entities = append(j.Entities, &pb.EntityType{
			Type: t.Type, Views: t.Views, Concurrency: int64(t.Concurrency), Mailbox: int64(t.Mailbox), MailboxBytes: int64(t.MailboxBytes), Idle: int64(t.Idle),
			Ttl: int64(t.TTL), IdleTtl: int64(t.IdleTTL), StateVersion: int64(t.StateVersion), Log: int64(t.Log), LogInputs: t.LogInputs,
		})
	}
	return j
}

// Interruption builds the message that interrupts a call.
func Interruption(i model.Interruption) *pb.Interruption {
	out := &pb.Interruption{Entity: Address(i.Entity), Generation: i.Generation}
	if i.Call >= 0 {
		call := int64(i.Call)
		out.Call = &call
	}
	return out
}

// ReadInterruption reads which call to interrupt.
func ReadInterruption(tenant string, i *pb.Interruption) model.Interruption {
	out := model.Interruption{Entity: ReadAddress(tenant, i.GetEntity()), Generation: i.GetGeneration(), Call: model.AnyCall}
	if i.Call != nil {
		out.Call = int(i.GetCall())
	}
	return out
}

// ReadEntityJoin reads an offer of entities and services.
func ReadEntityJoin(tenant string, j *pb.Join) model.EntityOffer {
	o := model.EntityOffer{Name: j.GetName(), Tenant: tenant, Version: j.GetVersion(), Slots: int(j.GetSlots())}
	for _, a := range j.GetHeldEntities() {
		o.Held = append(o.Held, model.HeldRun{Address: ReadAddress(tenant, a)})
	}
	for _, t := range j.GetEntities() {
		o.Types = append(o.Types, model.EntityType{
			Type: t.GetType(), Views: t.GetViews(), Concurrency: int(t.GetConcurrency()), Mailbox: int(t.GetMailbox()), MailboxBytes: int(t.GetMailboxBytes()),
			Idle: time.Duration(t.GetIdle()), TTL: time.Duration(t.GetTtl()), IdleTTL: time.Duration(t.GetIdleTtl()),
			StateVersion: int(t.GetStateVersion()), Log: int(t.GetLog()), LogInputs: t.GetLogInputs(),
		})
	}
	return o
}

// Activation builds the message that hands a run over to a worker. The caller adds the events, and
// may send some of them in later messages.
func Activation(a *model.Activation) *pb.Activation {
	return &pb.Activation{
		Address: Address(a.Start.Address), Run: Run(a.Start.Run), At: int64(a.Start.At), Start: model.AppendStart(nil, a.Start),
		Generation: a.Generation, Now: int64(a.Now), Begun: a.Begun, MaxEvents: a.Limits.Events, MaxBytes: int64(a.Limits.Bytes),
	}
}

// ReadActivation reads an activation with the events that the message contains.
func ReadActivation(tenant string, a *pb.Activation) (model.Activation, error) {
	run, err := ReadRun(a.GetRun())
	if err != nil {
		return model.Activation{}, err
	}
	start, err := model.DecodeStart(ReadAddress(tenant, a.GetAddress()), run, model.Time(a.GetAt()), a.GetStart())
	if err != nil {
		return model.Activation{}, fault.New(fault.Invalid, "%w", err)
	}
	events, err := ReadEvents(a.GetEvents())
	return model.Activation{
		Start: &start, Generation: a.GetGeneration(), Events: events, Now: model.Time(a.GetNow()), Begun: a.GetBegun(),
		Limits: model.HistoryLimits{Events: a.GetMaxEvents(), Bytes: int(a.GetMaxBytes())},
	}, err
}

// Turn builds the message that says what the code of a run did.
func Turn(t *model.Turn) *pb.Turn {
	out := &pb.Turn{
		Run: Run(t.Run), Generation: t.Generation, Seen: t.Seen, Ahead: int64(t.Ahead), Close: writeClose(t.Close), Running: t.Running,
		Waits: reasons(t.Waits),
	}
	if t.Blocked != nil {
		out.Blocked = model.AppendReasons(nil, []model.Reason{*t.Blocked})
	}
	if len(t.Commands) > 0 {
		out.Commands = make([]*pb.Command, len(t.Commands))
		for i := range t.Commands {
			out.Commands[i] = command(&t.Commands[i])
		}
	}
	return out
}

// ReadTurn reads a turn.
func ReadTurn(t *pb.Turn) (model.Turn, error) {
	run, err := ReadRun(t.GetRun())
	if err != nil {
		return model.Turn{}, err
	}
	out := model.Turn{Run: run, Generation: t.GetGeneration(), Seen: t.GetSeen(), Ahead: int(t.GetAhead()), Running: t.GetRunning()}
	if out.Close, err = readClosing(t.GetClose()); err != nil {
		return out, err
	}
	if out.Waits, err = ReadReasons(t.GetWaits()); err != nil {
		return out, err
	}
	blocked, err := ReadReasons(t.GetBlocked())
	if err != nil {
		return out, err
	}
	if len(blocked) > 0 {
		out.Blocked = &blocked[0]
	}

	if n := len(t.GetCommands()); n > 0 {
		out.Commands = make([]model.Command, n)
		for i, c := range t.GetCommands() {
			if out.Commands[i], err = readCommand(c); err != nil {
				return out, err
			}
		}
	}
	if out.Ahead < 0 || out.Ahead > len(out.Commands) {
		return out, fault.New(fault.Invalid, "a turn with %d commands takes %d of them for granted", len(out.Commands), out.Ahead)
	}
	return out, nil
}

func reasons(rs []model.Reason) []byte {
	if len(rs) == 0 {
		return nil
	}
	return model.AppendReasons(nil, rs)
}

// ReadReasons reads the stored encoding of reasons.
func ReadReasons(b []byte) ([]model.Reason, error) {
	rs, err := model.DecodeReasons(b)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%w", err)
	}
	return rs, nil
}

func command(c *model.Command) *pb.Command {
	out := &pb.Command{Kind: uint32(c.Kind), Event: Event(&c.Event), Delay: int64(c.Delay), Reuse: uint32(c.Reuse), Labels: Labels(c.Labels)}
	if c.Message != nil {
		out.Message = model.AppendMessage(nil, c.Message)
	}
	if c.Terms != nil {
		out.Terms = must(cbor.Marshal(c.Terms))
	}
	return out
}

func readCommand(c *pb.Command) (model.Command, error) {
	if c.GetKind() == 0 || c.GetKind() > uint32(model.CommandUnlock) {
		return model.Command{}, fault.New(fault.Invalid, "a command of kind %d, which this build does not know", c.GetKind())
	}
	if c.GetReuse() > uint32(model.ReuseAlways) {
		return model.Command{}, fault.New(fault.Invalid, "a reuse policy %d, which this build does not know", c.GetReuse())
	}
	e, err := readTemplate(c.GetEvent())
	if err != nil {
		return model.Command{}, err
	}

	out := model.Command{
		Kind: model.CommandKind(c.GetKind()), Event: e, Delay: time.Duration(c.GetDelay()), Reuse: model.ReusePolicy(c.GetReuse()), Labels: ReadLabels(c.GetLabels()),
	}

	if len(c.GetMessage()) > 0 {
		m, err := readMessage(c.GetMessage())
		if err != nil {
			return out, err
		}
		out.Message = &m
	}

	if len(c.GetTerms()) > 0 {
		out.Terms = new(model.Terms)
		if err := cbor.Unmarshal(c.GetTerms(), out.Terms); err != nil {
			return out, fault.New(fault.Invalid, "the terms of a child: %w", err)
		}
	}

	return out, nil
}

// readTemplate reads the event of a command. Commands that record no event, such as commands for
// timers, have an event without a kind.
func readTemplate(e *pb.Event) (model.Event, error) {
	if e.GetKind() != 0 {
		return ReadEvent(e)
	}
	out, err := model.DecodeEvent(e.GetPosition(), model.Time(e.GetAt()), model.EventTimerFired, e.GetBody())
	if err != nil {
		return out, fault.New(fault.Invalid, "%w", err)
	}
	out.Kind = 0
	return out, nil
}

func writeClose(c *model.Close) *pb.Close {
	if c == nil {
		return nil
	}
	return &pb.Close{
		Status: uint32(c.Status), Output: Payload(c.Output), Failure: Failure(c.Failure), Input: Payload(c.Input), Begun: c.Begun,
		Retain: int64(c.Retain), Retry: Retry(c.Retry), Final: c.Final, RetryAfter: int64(c.RetryAfter),
	}
}

// readClosing reads how the code of a run ended. It refuses a status that is not the end of a run
// before the engine sees it. Otherwise the engine would block the run because of a mistake of the
// worker.
func readClosing(c *pb.Close) (*model.Close, error) {
	if c == nil {
		return nil, nil
	}
	if s := c.GetStatus(); s <= uint32(model.Running) || s > uint32(model.Continued) {
		return nil, fault.New(fault.Invalid, "a run ends with status %d, which is not an end", s)
	}
	return &model.Close{
		Status: model.Status(c.GetStatus()), Output: ReadPayload(c.GetOutput()), Failure: ReadFailure(c.GetFailure()), Input: ReadPayload(c.GetInput()),
		Begun: c.GetBegun(), Retain: time.Duration(c.GetRetain()), Retry: ReadRetry(c.GetRetry()), Final: c.GetFinal(), RetryAfter: time.Duration(c.GetRetryAfter()),
	}, nil
}

// readMessage reads a message that the code of a worker sends. It does not check what the message
// says: core.Overreach does that for the workers of every process. An error here would end the
// session of the worker, with all its runs, although only the run that sends the message is wrong.
func readMessage(body []byte) (model.Message, error) {
	m, err := model.DecodeMessage(body)
	if err != nil {
		return m, fault.New(fault.Invalid, "%w", err)
	}
	return m, nil
}

// Operations builds the message that hands calls of one entity to a worker.
func Operations(o *model.Operations) *pb.Operations {
	out := &pb.Operations{
		Entity: Address(o.Entity), Generation: o.Generation, State: Payload(o.State), Exists: o.Exists, Now: int64(o.Now),
		Calls: make([]*pb.OperationCall, len(o.Calls)),
	}
	for i := range o.Calls {
		c := &o.Calls[i]
		out.Calls[i] = &pb.OperationCall{Name: c.Name, Input: Payload(c.Input), Trace: c.Trace, Number: c.Number}
	}
	return out
}

// ReadOperations reads calls of one entity.
func ReadOperations(tenant string, o *pb.Operations) model.Operations {
	out := model.Operations{
		Entity: ReadAddress(tenant, o.GetEntity()), Generation: o.GetGeneration(), State: ReadPayload(o.GetState()), Exists: o.GetExists(), Now: model.Time(o.GetNow()),
		Calls: make([]model.OperationCall, len(o.GetCalls())),
	}
	for i, c := range o.GetCalls() {
		out.Calls[i] = model.OperationCall{Name: c.GetName(), Input: ReadPayload(c.GetInput()), Trace: c.GetTrace(), Number: c.GetNumber()}
	}
	return out
}

// Operated builds the message that reports the results of operations.
func Operated(r *model.Operated) *pb.Operated {
	out := &pb.Operated{
		Entity: Address(r.Entity), Generation: r.Generation, Changed: r.Changed, State: Payload(r.State), Exists: r.Exists,
		Results: make([]*pb.OperationResult, len(r.Results)),
	}
	for i := range r.Results {
		res := &r.Results[i]
		p := &pb.OperationResult{Output: Payload(res.Output), Failure: Failure(res.Failure), Unmade: res.Unmade}
		for j := range res.Messages {
			p.Messages = append(p.Messages, model.AppendMessage(nil, &res.Messages[j]))
		}
		out.Results[i] = p
	}
	return out
}

// ReadOperated reads the results of operations.
func ReadOperated(tenant string, r *pb.Operated) (model.Operated, error) {
	out := model.Operated{
		Entity: ReadAddress(tenant, r.GetEntity()), Generation: r.GetGeneration(), Changed: r.GetChanged(), State: ReadPayload(r.GetState()), Exists: r.GetExists(),
		Results: make([]model.OperationResult, len(r.GetResults())),
	}
	for i, res := range r.GetResults() {
		p := model.OperationResult{Output: ReadPayload(res.GetOutput()), Failure: ReadFailure(res.GetFailure()), Unmade: res.GetUnmade()}
		for _, body := range res.GetMessages() {
			m, err := readMessage(body)
			if err != nil {
				return out, err
			}
			p.Messages = append(p.Messages, m)
		}
		out.Results[i] = p
	}

	return out, nil
}

// must returns v, and panics if err is not nil. It is for encodings that cannot fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
