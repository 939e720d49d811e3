package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// Target builds the message that names an execution.
func Target(t api.Target) *pb.Target { return &pb.Target{Address: Address(t.Address), Run: Run(t.Run)} }

// ReadTarget reads the name of an execution.
func ReadTarget(tenant string, t *pb.Target) (api.Target, error) {
	run, err := ReadRun(t.GetRun())
	return api.Target{Address: ReadAddress(tenant, t.GetAddress()), Run: run}, err
}

// StartRequest builds the message that starts an execution.
func StartRequest(r api.StartRequest) *pb.StartRequest {
	return &pb.StartRequest{
		Address: Address(r.Address), Input: Payload(r.Input), Reuse: pb.ReusePolicy(r.Reuse), RequestId: r.RequestID, Labels: Labels(r.Labels),
		With: each(r.With, func(m api.Message) *pb.NamedPayload { return &pb.NamedPayload{Name: m.Name, Input: Payload(m.Input)} }),
		Task: TaskSpec(r.Task), Terms: Terms(r.Terms),
	}
}

// ReadStartRequest reads a start.
func ReadStartRequest(tenant string, r *pb.StartRequest) (out api.StartRequest, err error) {
	out = api.StartRequest{
		Address: ReadAddress(tenant, r.GetAddress()), Input: ReadPayload(r.GetInput()), RequestID: r.GetRequestId(), Labels: ReadLabels(r.GetLabels()),
		With: each(r.GetWith(), func(m *pb.NamedPayload) api.Message {
			return api.Message{Name: m.GetName(), Input: ReadPayload(m.GetInput())}
		}),
		Terms: ReadTerms(r.GetTerms()),
	}
	if out.Reuse, err = readReuse(r.GetReuse()); err != nil {
		return out, err
	}
	out.Task, err = ReadTaskSpec(tenant, r.GetTask())
	return out, err
}

// StartReply builds the reply to a start. The reply names the run that now has the key.
func StartReply(r api.StartReply) *pb.StartReply {
	return &pb.StartReply{Run: Run(r.Run), Existing: r.Existing, Status: pb.Status(r.Status)}
}

// ReadStartReply reads the reply to a start.
func ReadStartReply(_ string, r *pb.StartReply) (out api.StartReply, err error) {
	out.Existing = r.GetExisting()
	if out.Run, err = ReadRun(r.GetRun()); err != nil {
		return out, err
	}
	out.Status, err = readStatus(r.GetStatus())
	return out, err
}

// StartManyRequest builds the message that starts many executions.
func StartManyRequest(rs []api.StartRequest) *pb.StartManyRequest {
	return &pb.StartManyRequest{Requests: each(rs, StartRequest)}
}

// ReadStartManyRequest reads many starts.
func ReadStartManyRequest(tenant string, r *pb.StartManyRequest) ([]api.StartRequest, error) {
	return readEach(tenant, r.GetRequests(), ReadStartRequest)
}

// StartManyReply builds the message with one reply per start.
func StartManyReply(rs []api.StartedReply) *pb.StartManyReply {
	return &pb.StartManyReply{Replies: each(rs, func(r api.StartedReply) *pb.StartedReply {
		return &pb.StartedReply{Reply: StartReply(r.StartReply), Error: ErrorDetail(r.Err)}
	})}
}

// ReadStartManyReply reads the replies to many starts.
func ReadStartManyReply(tenant string, r *pb.StartManyReply) ([]api.StartedReply, error) {
	return readEach(tenant, r.GetReplies(), func(tenant string, r *pb.StartedReply) (api.StartedReply, error) {
		reply, err := ReadStartReply(tenant, r.GetReply())
		return api.StartedReply{StartReply: reply, Err: ReadError(r.GetError())}, err
	})
}

// Result builds the message that says how an execution ended.
func Result(r api.Result) *pb.Result {
	return &pb.Result{Run: Run(r.Run), Outcome: Outcome(&r.Outcome)}
}

// ReadResult reads how an execution ended.
func ReadResult(_ string, r *pb.Result) (out api.Result, err error) {
	if out.Run, err = ReadRun(r.GetRun()); err != nil {
		return out, err
	}
	out.Outcome, err = ReadOutcome(r.GetOutcome())
	return out, err
}

// SignalRequest builds the message that sends a signal.
func SignalRequest(r api.SignalRequest) *pb.SignalRequest {
	return &pb.SignalRequest{Target: Target(r.Target), Name: r.Name, Input: Payload(r.Input), RequestId: r.RequestID}
}

// ReadSignalRequest reads a signal.
func ReadSignalRequest(tenant string, r *pb.SignalRequest) (api.SignalRequest, error) {
	target, err := ReadTarget(tenant, r.GetTarget())
	return api.SignalRequest{Target: target, Name: r.GetName(), Input: ReadPayload(r.GetInput()), RequestID: r.GetRequestId()}, err
}

// SettleRequest builds the message that resolves or rejects a promise.
func SettleRequest(r api.SettleRequest) *pb.SettleRequest {
	return &pb.SettleRequest{Target: Target(r.Target), Name: r.Name, Value: Payload(r.Value), Failure: Failure(r.Failure), RequestId: r.RequestID}
}

// ReadSettleRequest reads the value of a promise.
func ReadSettleRequest(tenant string, r *pb.SettleRequest) (api.SettleRequest, error) {
	target, err := ReadTarget(tenant, r.GetTarget())
	return api.SettleRequest{
		Target: target, Name: r.GetName(), Value: ReadPayload(r.GetValue()), Failure: ReadFailure(r.GetFailure()), RequestID: r.GetRequestId(),
	}, err
}

// OrderRequest builds the message of an order, which cancels, terminates, pauses or resumes an
// execution.
func OrderRequest(r api.CancelRequest) *pb.OrderRequest {
	return &pb.OrderRequest{Target: Target(r.Target), Reason: r.Reason, RequestId: r.RequestID}
}

// ReadOrderRequest reads an order.
func ReadOrderRequest(tenant string, r *pb.OrderRequest) (api.CancelRequest, error) {
	target, err := ReadTarget(tenant, r.GetTarget())
	return api.CancelRequest{Target: target, Reason: r.GetReason(), RequestID: r.GetRequestId()}, err
}

// SignalsRequest builds the message that lists, shows, skips or drops signals that the code of an
// execution has not received.
func SignalsRequest(r api.SignalsRequest) *pb.SignalsRequest {
	return &pb.SignalsRequest{
		Target: Target(r.Target), Verb: wordNumber[pb.MailboxVerb](mailboxVerbs, r.Do), Id: r.ID, Reason: r.Reason, RequestId: r.RequestID,
	}
}

// ReadSignalsRequest reads a request about signals.
func ReadSignalsRequest(tenant string, r *pb.SignalsRequest) (out api.SignalsRequest, err error) {
	out = api.SignalsRequest{ID: r.GetId(), Reason: r.GetReason(), RequestID: r.GetRequestId()}
	if out.Do, err = readWord("operation on signals", mailboxVerbs, r.GetVerb()); err != nil {
		return out, err
	}
	out.Target, err = ReadTarget(tenant, r.GetTarget())
	return out, err
}

// UpdateRequest builds the message that sends an update.
func UpdateRequest(r api.UpdateRequest) *pb.UpdateRequest {
	return &pb.UpdateRequest{Target: Target(r.Target), Name: r.Name, Input: Payload(r.Input), RequestId: r.RequestID}
}

// ReadUpdateRequest reads an update.
func ReadUpdateRequest(tenant string, r *pb.UpdateRequest) (api.UpdateRequest, error) {
	target, err := ReadTarget(tenant, r.GetTarget())
	return api.UpdateRequest{Target: target, Name: r.GetName(), Input: ReadPayload(r.GetInput()), RequestID: r.GetRequestId()}, err
}

// QueryRequest builds the message that sends a query.
func QueryRequest(r api.QueryRequest) *pb.QueryRequest {
	return &pb.QueryRequest{Target: Target(r.Target), Name: r.Name, Input: Payload(r.Input)}
}

// ReadQueryRequest reads a query.
func ReadQueryRequest(tenant string, r *pb.QueryRequest) (api.QueryRequest, error) {
	target, err := ReadTarget(tenant, r.GetTarget())
	return api.QueryRequest{Target: target, Name: r.GetName(), Input: ReadPayload(r.GetInput())}, err
}

// ValueReply builds the reply to an update or a query: the answer of the code of the execution.
func ValueReply(p model.Payload) *pb.ValueReply { return &pb.ValueReply{Value: Payload(p)} }

// ReadValueReply reads the reply to an update or a query.
func ReadValueReply(_ string, r *pb.ValueReply) (model.Payload, error) {
	return ReadPayload(r.GetValue()), nil
}

// HistoryRequest builds the message that asks for a page of events.
func HistoryRequest(r api.HistoryRequest) *pb.HistoryRequest {
	return &pb.HistoryRequest{Target: Target(r.Target), After: r.After, Limit: int64(r.Limit)}
}

// ReadHistoryRequest reads a request for events.
func ReadHistoryRequest(tenant string, r *pb.HistoryRequest) (api.HistoryRequest, error) {
	target, err := ReadTarget(tenant, r.GetTarget())
	return api.HistoryRequest{Target: target, After: r.GetAfter(), Limit: int(r.GetLimit())}, err
}

// HistoryPart builds the message for a page of events, or for a part of a page.
func HistoryPart(p api.HistoryPage) *pb.HistoryPart {
	return &pb.HistoryPart{Run: Run(p.Run), Events: HistoryEvents(p.Events), More: p.More}
}

// ReadHistoryPart reads events.
func ReadHistoryPart(tenant string, p *pb.HistoryPart) (out api.HistoryPage, err error) {
	out.More = p.GetMore()
	if out.Run, err = ReadRun(p.GetRun()); err != nil {
		return out, err
	}
	out.Events, err = ReadHistoryEvents(tenant, p.GetEvents())
	return out, err
}

// ListRequest builds the message that selects executions.
func ListRequest(r api.ListRequest) *pb.ListRequest {
	return &pb.ListRequest{
		Workflows: r.Workflows, Key: r.Key, KeyPrefix: r.KeyPrefix,
		Statuses:    each(r.Statuses, func(s model.Status) pb.Status { return pb.Status(s) }),
		Reasons:     each(r.Reasons, func(c model.ReasonCode) string { return string(c) }),
		StartedFrom: int64(r.StartedFrom), StartedTo: int64(r.StartedTo), ClosedFrom: int64(r.ClosedFrom), ClosedTo: int64(r.ClosedTo),
		Labels: each(r.Labels, func(c model.LabelCondition) *pb.LabelCondition {
			return &pb.LabelCondition{Name: c.Name, Values: c.Values, Not: c.Not}
		}),
		AllRuns: r.AllRuns, Explain: r.Explain, Versions: r.Versions, Limit: int64(r.Limit), Cursor: r.Cursor,
	}
}

// ReadListRequest reads a selection of executions.
func ReadListRequest(tenant string, r *pb.ListRequest) (out api.ListRequest, err error) {
	out = api.ListRequest{
		Tenant: tenant, Workflows: r.GetWorkflows(), Key: r.GetKey(), KeyPrefix: r.GetKeyPrefix(),
		Reasons:     each(r.GetReasons(), func(c string) model.ReasonCode { return model.ReasonCode(c) }),
		StartedFrom: model.Time(r.GetStartedFrom()), StartedTo: model.Time(r.GetStartedTo()),
		ClosedFrom: model.Time(r.GetClosedFrom()), ClosedTo: model.Time(r.GetClosedTo()),
		Labels: each(r.GetLabels(), func(c *pb.LabelCondition) model.LabelCondition {
			return model.LabelCondition{Name: c.GetName(), Values: c.GetValues(), Not: c.GetNot()}
		}),
		AllRuns: r.GetAllRuns(), Explain: r.GetExplain(), Versions: r.GetVersions(), Limit: int(r.GetLimit()), Cursor: r.GetCursor(),
	}
	out.Statuses, err = readEach(tenant, r.GetStatuses(), func(_ string, s pb.Status) (model.Status, error) { return readStatus(s) })
	return out, err
}

// ListPage builds the message for one page of executions.
func ListPage(p api.ListPage) *pb.ListPage {
	return &pb.ListPage{Executions: each(p.Executions, Description), Cursor: p.Cursor}
}

// ReadListPage reads a page of executions.
func ReadListPage(tenant string, p *pb.ListPage) (out api.ListPage, err error) {
	out.Cursor = p.GetCursor()
	out.Executions, err = readEach(tenant, p.GetExecutions(), ReadDescription)
	return out, err
}

// CountReply builds the message for a count.
func CountReply(n int64) *pb.CountReply { return &pb.CountReply{Count: n} }

// ReadCountReply reads a count.
func ReadCountReply(_ string, r *pb.CountReply) (int64, error) { return r.GetCount(), nil }
