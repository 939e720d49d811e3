package wire

import (
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// optionalAddress builds the message for an address that may be missing. It returns nil for a
// missing address.
func optionalAddress(a model.Address) *pb.Address {
	if a.IsZero() {
		return nil
	}
	return Address(a)
}

func readOptionalAddress(tenant string, a *pb.Address) model.Address {
	if a == nil {
		return model.Address{}
	}
	return ReadAddress(tenant, a)
}

// Link builds the message that names a step of a run. It returns nil for a zero link.
func Link(l model.Link) *pb.Link {
	if l == (model.Link{}) {
		return nil
	}
	return &pb.Link{Address: optionalAddress(l.Address), Run: Run(l.Run), Id: l.ID}
}

// ReadLink reads the name of a step.
func ReadLink(tenant string, l *pb.Link) (model.Link, error) {
	if l == nil {
		return model.Link{}, nil
	}
	run, err := ReadRun(l.GetRun())
	return model.Link{Address: readOptionalAddress(tenant, l.GetAddress()), Run: run, ID: l.GetId()}, err
}

// Reason builds the message that says why something waits.
func Reason(r model.Reason) *pb.Reason {
	return &pb.Reason{
		Code: text(string(r.Code)), Name: text(r.Name), Until: int64(r.Until), Attempt: int64(r.Attempt), Detail: text(r.Detail), Where: text(r.Where),
	}
}

// ReadReason reads a reason.
func ReadReason(_ string, r *pb.Reason) (model.Reason, error) {
	return model.Reason{
		Code: model.ReasonCode(r.GetCode()), Name: r.GetName(), Until: model.Time(r.GetUntil()), Attempt: int(r.GetAttempt()),
		Detail: r.GetDetail(), Where: r.GetWhere(),
	}, nil
}

// Terms builds the message that says when an execution starts and ends. It returns nil for nil.
func Terms(t *model.Terms) *pb.Terms {
	if t == nil {
		return nil
	}
	return &pb.Terms{Delay: int64(t.Delay), NotBefore: int64(t.NotBefore), Timeout: int64(t.Timeout), Retry: Retry(t.Retry)}
}

// ReadTerms reads terms. It returns nil for nil.
func ReadTerms(t *pb.Terms) *model.Terms {
	if t == nil {
		return nil
	}
	return &model.Terms{
		Delay: time.Duration(t.GetDelay()), NotBefore: model.Time(t.GetNotBefore()), Timeout: time.Duration(t.GetTimeout()), Retry: ReadRetry(t.GetRetry()),
	}
}

// HistoryEvent builds the message for an event.
func HistoryEvent(e model.Event) *pb.HistoryEvent {
	return &pb.HistoryEvent{
		Position: e.Seq, At: int64(e.At), Kind: uint32(e.Kind), Id: e.ID, Name: e.Name, Attempt: int64(e.Attempt),
		Input: Payload(e.Input), Output: Payload(e.Output), Failure: Failure(e.Failure), Due: int64(e.Due), Ref: e.Ref,
		Target: optionalAddress(e.Target), Run: Run(e.Run), Status: pb.Status(e.Status), Watcher: Link(e.Waiter()), RequestId: e.RequestID,
		Policy: pb.ParentClosePolicy(e.Policy), CodePosition: text(e.Position), Detached: e.Detached, Seen: e.Seen,
		Task: TaskSpec(e.Task), Worker: text(e.Worker), Locks: each(e.Locks, Address), Section: e.Section,
	}
}

// ReadHistoryEvent reads an event. It returns an error if this build does not know the kind.
func ReadHistoryEvent(tenant string, e *pb.HistoryEvent) (out model.Event, err error) {
	if e.GetKind() > 255 || !model.EventKind(e.GetKind()).Known() {
		return out, fault.New(fault.Invalid, "event %d has kind %d, which this build does not know", e.GetPosition(), e.GetKind())
	}
	out = model.Event{
		Seq: e.GetPosition(), At: model.Time(e.GetAt()), Kind: model.EventKind(e.GetKind()), ID: e.GetId(), Name: e.GetName(), Attempt: int(e.GetAttempt()),
		Input: ReadPayload(e.GetInput()), Output: ReadPayload(e.GetOutput()), Failure: ReadFailure(e.GetFailure()), Due: model.Time(e.GetDue()), Ref: e.GetRef(),
		Target: readOptionalAddress(tenant, e.GetTarget()), RequestID: e.GetRequestId(), Position: e.GetCodePosition(), Detached: e.GetDetached(), Seen: e.GetSeen(),
		Worker: e.GetWorker(), Section: e.GetSection(),
	}

	for _, a := range e.GetLocks() {
		out.Locks = append(out.Locks, ReadAddress(tenant, a))
	}
	if out.Run, err = ReadRun(e.GetRun()); err != nil {
		return out, err
	}
	if out.Status, err = readStatus(e.GetStatus()); err != nil {
		return out, err
	}
	if out.Policy, err = readParentClose(e.GetPolicy()); err != nil {
		return out, err
	}
	watcher, err := ReadLink(tenant, e.GetWatcher())
	if err != nil {
		return out, err
	}
	out.Watcher = watcher.Pointer()
	out.Task, err = ReadTaskSpec(tenant, e.GetTask())
	return out, err
}

// HistoryEvents builds the messages for many events with HistoryEvent.
func HistoryEvents(events []model.Event) []*pb.HistoryEvent { return each(events, HistoryEvent) }

// ReadHistoryEvents reads many events with ReadHistoryEvent.
func ReadHistoryEvents(tenant string, events []*pb.HistoryEvent) ([]model.Event, error) {
	return readEach(tenant, events, ReadHistoryEvent)
}

// Start builds the message for everything that a run starts with.
func Start(s *model.Start) *pb.Start {
	out := &pb.Start{
		Address: Address(s.Address), Run: Run(s.Run), At: int64(s.At), Input: Payload(s.Input), RequestId: s.RequestID, Parent: Link(s.Parent),
		OnParentClose: pb.ParentClosePolicy(s.OnParentClose), First: Run(s.First), Previous: Run(s.Previous), Origin: s.Origin, Labels: Labels(s.Labels),
		Carried: HistoryEvents(s.Carried), Began: int64(s.Began), Identity: Run(s.Identity), Replaced: Run(s.Replaced), Earlier: each(s.Earlier, Run),
		Task: TaskSpec(s.Task), Worker: text(s.Worker), Trace: text(s.Trace), Begins: int64(s.Begins), Expires: int64(s.Expires),
		Terms: Terms(s.Terms), Attempt: int64(s.Attempt), Cause: Failure(s.Cause),
	}
	for _, seed := range s.Seeds {
		out.Seeds = append(out.Seeds, &pb.Seed{Until: seed.Until, Run: Run(seed.Run)})
	}
	if !s.Source.IsZero() {
		out.Source = &pb.Source{Address: optionalAddress(s.Source.Address), Run: Run(s.Source.Run), Position: s.Source.Position}
	}
	return out
}

// ReadStart reads a start.
func ReadStart(tenant string, s *pb.Start) (out model.Start, err error) {
	out = model.Start{
		Address: ReadAddress(tenant, s.GetAddress()), At: model.Time(s.GetAt()), Input: ReadPayload(s.GetInput()), RequestID: s.GetRequestId(),
		Origin: s.GetOrigin(), Labels: ReadLabels(s.GetLabels()), Began: model.Time(s.GetBegan()), Worker: s.GetWorker(), Trace: s.GetTrace(),
		Begins: model.Time(s.GetBegins()), Expires: model.Time(s.GetExpires()), Terms: ReadTerms(s.GetTerms()), Attempt: int(s.GetAttempt()),
		Cause: ReadFailure(s.GetCause()),
	}

	for _, id := range []struct {
		from []byte
		to   *model.RunID
	}{{s.GetRun(), &out.Run}, {s.GetFirst(), &out.First}, {s.GetPrevious(), &out.Previous}, {s.GetIdentity(), &out.Identity}, {s.GetReplaced(), &out.Replaced}} {
		if *id.to, err = ReadRun(id.from); err != nil {
			return out, err
		}
	}
	if out.Earlier, err = readRuns(s.GetEarlier()); err != nil {
		return out, err
	}

	if out.Parent, err = ReadLink(tenant, s.GetParent()); err != nil {
		return out, err
	}
	if out.OnParentClose, err = readParentClose(s.GetOnParentClose()); err != nil {
		return out, err
	}
	if out.Carried, err = ReadHistoryEvents(tenant, s.GetCarried()); err != nil {
		return out, err
	}
	if out.Task, err = ReadTaskSpec(tenant, s.GetTask()); err != nil {
		return out, err
	}

	for _, seed := range s.GetSeeds() {
		run, err := ReadRun(seed.GetRun())
		if err != nil {
			return out, err
		}
		out.Seeds = append(out.Seeds, model.Seed{Until: seed.GetUntil(), Run: run})
	}
	if source := s.GetSource(); source != nil {
		out.Source = model.Source{Address: readOptionalAddress(tenant, source.GetAddress()), Position: source.GetPosition()}
		out.Source.Run, err = ReadRun(source.GetRun())
	}
	return out, err
}

// Outcome builds the message that says how a run ended.
func Outcome(o *model.Outcome) *pb.Outcome {
	return &pb.Outcome{
		Status: pb.Status(o.Status), Output: Payload(o.Output), Failure: Failure(o.Failure), At: int64(o.At), Seen: o.Seen, Next: Run(o.Next), Leaves: int64(o.Leaves),
	}
}

// ReadOutcome reads an outcome.
func ReadOutcome(o *pb.Outcome) (out model.Outcome, err error) {
	out = model.Outcome{
		Output: ReadPayload(o.GetOutput()), Failure: ReadFailure(o.GetFailure()), At: model.Time(o.GetAt()), Seen: o.GetSeen(), Leaves: model.Time(o.GetLeaves()),
	}
	if out.Status, err = readStatus(o.GetStatus()); err != nil {
		return out, err
	}
	out.Next, err = ReadRun(o.GetNext())
	return out, err
}

// Description builds the message for the state of an execution.
func Description(d api.Description) *pb.Description {
	return &pb.Description{
		Shard: uint32(d.Shard), Start: Start(&d.Start), Outcome: Outcome(&d.Outcome), Current: d.Current, Reasons: each(d.Reasons, Reason),
		Chain: each(d.Chain, func(l api.Link) *pb.ReasonLink {
			return &pb.ReasonLink{Subject: text(l.Subject), Reason: Reason(l.Reason)}
		}),
		Alive: each(d.Alive, text), Events: d.Events, Owner: node(d.Owner), Labels: Labels(d.Labels),
		Timers:  each(d.Timers, func(t api.Timer) *pb.Timer { return &pb.Timer{Id: t.ID, Due: int64(t.Due)} }),
		Tasks:   each(d.Tasks, openTask),
		Version: text(d.Version),
	}
}

// ReadDescription reads the state of an execution.
func ReadDescription(tenant string, d *pb.Description) (out api.Description, err error) {
	out = api.Description{Current: d.GetCurrent(), Alive: d.GetAlive(), Events: d.GetEvents(), Labels: ReadLabels(d.GetLabels()), Version: d.GetVersion()}
	if out.Shard, err = readShard(d.GetShard()); err != nil {
		return out, err
	}
	if out.Start, err = ReadStart(tenant, d.GetStart()); err != nil {
		return out, err
	}
	if out.Outcome, err = ReadOutcome(d.GetOutcome()); err != nil {
		return out, err
	}
	if out.Owner, err = readNode(d.GetOwner()); err != nil {
		return out, err
	}
	if out.Reasons, err = readEach(tenant, d.GetReasons(), ReadReason); err != nil {
		return out, err
	}

	out.Chain, _ = readEach(tenant, d.GetChain(), func(tenant string, l *pb.ReasonLink) (api.Link, error) {
		reason, err := ReadReason(tenant, l.GetReason())
		return api.Link{Subject: l.GetSubject(), Reason: reason}, err
	})
	out.Timers = each(d.GetTimers(), func(t *pb.Timer) api.Timer { return api.Timer{ID: t.GetId(), Due: model.Time(t.GetDue())} })
	out.Tasks = each(d.GetTasks(), readOpenTask)
	return out, nil
}

func openTask(t api.Task) *pb.OpenTask {
	return &pb.OpenTask{
		Id: t.ID, Activity: t.Activity, Queue: t.Queue, Scheduled: int64(t.Scheduled), Attempt: int64(t.Attempt), Worker: text(t.Worker), Since: int64(t.Since),
		Next: int64(t.Next), Failures: int64(t.Failures), Last: Failure(t.Last), Progress: Payload(t.Progress),
	}
}

func readOpenTask(t *pb.OpenTask) api.Task {
	return api.Task{
		ID: t.GetId(), Activity: t.GetActivity(), Queue: t.GetQueue(), Scheduled: model.Time(t.GetScheduled()), Attempt: int(t.GetAttempt()), Worker: t.GetWorker(),
		Since: model.Time(t.GetSince()), Next: model.Time(t.GetNext()), Failures: int(t.GetFailures()), Last: ReadFailure(t.GetLast()), Progress: ReadPayload(t.GetProgress()),
	}
}
