package audit

import (
	"context"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// backend records the administrative calls of api.Backend.
type backend struct {
	api.Backend

	log *Log
}

// Backend wraps an api.Backend and records the calls that the table names.
func (l *Log) Backend(inner api.Backend) api.Backend { return &backend{inner, l} }

// scheduleType is the type of the executions that are schedules.
const scheduleType = model.ReservedPrefix + "schedule"

// about names an execution, an entity or a schedule.
func about(a model.Address) string {
	switch {
	case a.Type == scheduleType:
		return "schedule " + a.Key
	case strings.HasPrefix(a.Type, model.EntityPrefix):
		return "entity " + strings.TrimPrefix(a.Type, model.EntityPrefix) + "/" + a.Key
	}
	return "execution " + a.Type + "/" + a.Key
}

func targetOf(t api.Target) (tenant, resource string) {
	resource = about(t.Address)
	if !t.Run.IsZero() {
		resource += " " + t.Run.String()
	}
	return t.Address.Tenant, resource
}

// command is the part of a command to a schedule that an entry shows. The rest of the command may
// contain a payload.
type command struct {
	Verb string `json:"verb"`
}

// Start records starts of schedules.
func (b *backend) Start(ctx context.Context, r api.StartRequest) (reply api.StartReply, err error) {
	err = b.ofSchedule(ctx, "Start", r.Address, func(ctx context.Context) (any, error) {
		reply, err = b.Backend.Start(ctx, r)
		return nil, err
	})
	return reply, err
}

// Run records starts of schedules.
func (b *backend) Run(ctx context.Context, r api.StartRequest) (reply api.Result, err error) {
	err = b.ofSchedule(ctx, "Run", r.Address, func(ctx context.Context) (any, error) {
		reply, err = b.Backend.Run(ctx, r)
		return nil, err
	})
	return reply, err
}

// StartMany records starts of schedules, one entry each.
func (b *backend) StartMany(ctx context.Context, rs []api.StartRequest) (replies []api.StartedReply, err error) {
	start := func(ctx context.Context) (any, error) {
		replies, err = b.Backend.StartMany(ctx, rs)
		return nil, err
	}
	for i := range rs {
		if rs[i].Address.Type == scheduleType {
			inner, address := start, rs[i].Address
			start = func(ctx context.Context) (any, error) { return nil, b.ofSchedule(ctx, "StartMany", address, inner) }
		}
	}
	_, err = start(ctx)
	return replies, err
}

// Signal records signals to schedules.
func (b *backend) Signal(ctx context.Context, r api.SignalRequest) error {
	return b.ofSchedule(ctx, "Signal", r.Target.Address, func(ctx context.Context) (any, error) { return nil, b.Backend.Signal(ctx, r) })
}

// Update records commands to schedules.
func (b *backend) Update(ctx context.Context, r api.UpdateRequest) (p model.Payload, err error) {
	err = b.ofSchedule(ctx, "Update", r.Target.Address, func(ctx context.Context) (any, error) {
		p, err = b.Backend.Update(ctx, r)
		return command{r.Name}, err
	})
	return p, err
}

// ofSchedule records a call to a schedule. Calls to other executions are not recorded, because they
// are the ordinary work of programs, and the log is about operators.
func (b *backend) ofSchedule(ctx context.Context, call string, a model.Address, act func(context.Context) (any, error)) error {
	if a.Type != scheduleType {
		_, err := act(ctx)
		return err
	}
	return b.log.record(ctx, api.AuditEntry{Tenant: a.Tenant, Call: call, Resource: about(a)}, act)
}

// Deliver records a message as the call that the message stands for. It records cancel requests,
// starts of schedules, and signals to schedules.
func (b *backend) Deliver(ctx context.Context, m *model.Message) error {
	act := func(ctx context.Context) (any, error) { return nil, b.Backend.Deliver(ctx, m) }
	switch m.Kind {
	case model.MessageCancel:
		return b.log.record(ctx, api.AuditEntry{Tenant: m.To.Tenant, Call: "Cancel", Resource: about(m.To), RequestID: m.RequestID}, act)
	case model.MessageStart:
		return b.ofSchedule(ctx, "Start", m.To, act)
	case model.MessageSignal:
		return b.ofSchedule(ctx, "Signal", m.To, act)
	default:
		_, err := act(ctx)
		return err
	}
}

// Cancel asks an execution to end.
func (b *backend) Cancel(ctx context.Context, r api.CancelRequest) error {
	return b.order(ctx, "Cancel", r, b.Backend.Cancel)
}

// Terminate ends an execution immediately.
func (b *backend) Terminate(ctx context.Context, r api.CancelRequest) error {
	return b.order(ctx, "Terminate", r, b.Backend.Terminate)
}

// Pause stops an execution until Resume.
func (b *backend) Pause(ctx context.Context, r api.CancelRequest) error {
	return b.order(ctx, "Pause", r, b.Backend.Pause)
}

// Resume undoes Pause.
func (b *backend) Resume(ctx context.Context, r api.CancelRequest) error {
	return b.order(ctx, "Resume", r, b.Backend.Resume)
}

func (b *backend) order(ctx context.Context, call string, r api.CancelRequest, act func(context.Context, api.CancelRequest) error) error {
	e := api.AuditEntry{Call: call, Reason: r.Reason, RequestID: r.RequestID}
	e.Tenant, e.Resource = targetOf(r.Target)
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) { return nil, act(ctx, r) })
}

// item names the call or signal that an operator has skipped, dropped or interrupted.
type item struct {
	Do string `json:"do"`
	ID string `json:"id,omitempty"`
}

// Signals skips or drops unread signals.
func (b *backend) Signals(ctx context.Context, r api.SignalsRequest) (c model.Calls, err error) {
	act := func(ctx context.Context) (any, error) {
		c, err = b.Backend.Signals(ctx, r)
		return item{r.Do, r.ID}, err
	}
	if r.Do == model.MailboxList || r.Do == model.MailboxShow {
		_, err := act(ctx)
		return c, err
	}
	e := api.AuditEntry{Call: "Signals"}
	e.Tenant, e.Resource = targetOf(r.Target)
	err = b.log.record(ctx, e, act)
	return c, err
}

// Mailbox skips, drops or interrupts calls.
func (b *backend) Mailbox(ctx context.Context, r api.MailboxRequest) (c model.Calls, err error) {
	act := func(ctx context.Context) (any, error) {
		c, err = b.Backend.Mailbox(ctx, r)
		return item{r.Do, r.ID}, err
	}
	if r.Do == model.MailboxList || r.Do == model.MailboxShow {
		_, err := act(ctx)
		return c, err
	}
	err = b.log.record(ctx, api.AuditEntry{Tenant: r.Address.Tenant, Call: "Mailbox", Resource: about(r.Address)}, act)
	return c, err
}

// versionValue is the part of the state of an entity that an entry shows. The state itself is a
// payload, so the entry does not have it.
type versionValue struct {
	Version int64 `json:"version"`
}

// EditEntity replaces the state of an entity.
func (b *backend) EditEntity(ctx context.Context, r api.EditRequest) (v model.EntityVersion, err error) {
	e := api.AuditEntry{Tenant: r.Address.Tenant, Call: "EditEntity", Resource: about(r.Address), RequestID: r.RequestID, Before: value(versionValue{r.Version.Number})}
	err = b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		if v, err = b.Backend.EditEntity(ctx, r); err != nil {
			return nil, err
		}
		return versionValue{v.Number}, nil
	})
	return v, err
}

// Unlock takes a lock from its holder.
func (b *backend) Unlock(ctx context.Context, r api.UnlockRequest) error {
	e := api.AuditEntry{Tenant: r.Address.Tenant, Call: "Unlock", Resource: about(r.Address), RequestID: r.RequestID}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) { return nil, b.Backend.Unlock(ctx, r) })
}

// Fork starts another execution with the past of a run.
func (b *backend) Fork(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	return b.past(ctx, "Fork", r, b.Backend.Fork)
}

// Retry continues an execution that has failed.
func (b *backend) Retry(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	return b.past(ctx, "Retry", r, b.Backend.Retry)
}

// Reset replaces the current run.
func (b *backend) Reset(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	return b.past(ctx, "Reset", r, b.Backend.Reset)
}

// pastValue names the run that was started, and says how much of the past it keeps.
type pastValue struct {
	Execution string `json:"execution"`
	Run       string `json:"run"`
	Position  int64  `json:"position"`
	Edits     int    `json:"edits,omitempty"`
}

func (b *backend) past(ctx context.Context, call string, r api.PastRequest, do func(context.Context, api.PastRequest) (api.PastReply, error)) (reply api.PastReply, err error) {
	if r.DryRun {
		return do(ctx, r)
	}
	e := api.AuditEntry{Call: call, RequestID: r.RequestID}
	e.Tenant, e.Resource = targetOf(r.Source)
	err = b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		if reply, err = do(ctx, r); err != nil {
			return nil, err
		}
		return pastValue{reply.Address.Type + "/" + reply.Address.Key, reply.Run.String(), reply.Position, len(r.Edits)}, nil
	})
	return reply, err
}

// Import stores a run of another store.
func (b *backend) Import(ctx context.Context, r api.ImportRequest) (reply api.PastReply, err error) {
	if r.DryRun {
		return b.Backend.Import(ctx, r)
	}
	e := api.AuditEntry{Tenant: r.Tenant, Call: "Import", Resource: "execution " + r.Key, RequestID: r.RequestID}
	err = b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		if reply, err = b.Backend.Import(ctx, r); err != nil {
			return nil, err
		}
		return pastValue{Execution: reply.Address.Type + "/" + reply.Address.Key, Run: reply.Run.String(), Position: reply.Position}, nil
	})
	return reply, err
}

// deleteValue says what a delete has removed.
type deleteValue struct {
	Runs  int  `json:"runs"`
	Force bool `json:"force,omitempty"`
}

// Delete removes a closed execution.
func (b *backend) Delete(ctx context.Context, r api.DeleteRequest) (reply api.DeleteReply, err error) {
	if r.DryRun {
		return b.Backend.Delete(ctx, r)
	}
	e := api.AuditEntry{Call: "Delete", RequestID: r.RequestID}
	e.Tenant, e.Resource = targetOf(r.Target)
	err = b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		reply, err = b.Backend.Delete(ctx, r)
		return deleteValue{len(reply.Runs), r.Force}, err
	})
	return reply, err
}

// batchValue is the part of a batch job that an entry shows.
type batchValue struct {
	Verb    string `json:"verb"`
	Query   string `json:"query"`
	Matched int64  `json:"matched"`
}

// StartBatch records batch jobs. The log has no entries for the single executions that a batch acts
// on, because the history of each execution names the batch.
func (b *backend) StartBatch(ctx context.Context, r api.BatchRequest) (got api.Batch, err error) {
	if r.DryRun {
		return b.Backend.StartBatch(ctx, r)
	}
	e := api.AuditEntry{Tenant: r.Tenant, Call: "StartBatch", Resource: "batch of " + r.Verb, Reason: r.Reason, RequestID: r.RequestID}
	if r.ID != "" {
		e.Resource = "batch " + r.ID
	}
	e.Before = value(batchValue{Verb: r.Verb, Query: r.Query})
	err = b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		if got, err = b.Backend.StartBatch(ctx, r); err != nil {
			return nil, err
		}
		return startedBatch{got.ID, batchValue{got.Verb, got.Selects, got.Progress.Matched}}, nil
	})
	return got, err
}

// startedBatch is the part of a started batch that an entry shows.
type startedBatch struct {
	ID string `json:"id"`
	batchValue
}

// CancelBatch ends a batch job.
func (b *backend) CancelBatch(ctx context.Context, t api.BatchTarget) error {
	e := api.AuditEntry{Tenant: t.Tenant, Call: "CancelBatch", Resource: "batch " + t.ID, Reason: t.Reason, RequestID: t.RequestID}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) { return nil, b.Backend.CancelBatch(ctx, t) })
}

// Requeue starts a dead task again.
func (b *backend) Requeue(ctx context.Context, r api.RequeueRequest) (reply api.RequeueReply, err error) {
	if r.DryRun {
		return b.Backend.Requeue(ctx, r)
	}
	e := api.AuditEntry{Tenant: r.ID.Tenant, Call: "Requeue", Resource: "dead task " + r.ID.String(), RequestID: r.RequestID}
	err = b.log.record(ctx, e, func(ctx context.Context) (any, error) {
		if reply, err = b.Backend.Requeue(ctx, r); err != nil {
			return nil, err
		}
		return pastValue{Execution: reply.Address.Type + "/" + reply.Address.Key, Run: reply.Run.String()}, nil
	})
	return reply, err
}

// UndoRequeue undoes Requeue.
func (b *backend) UndoRequeue(ctx context.Context, r api.UndoRequest) error {
	e := api.AuditEntry{Tenant: r.ID.Tenant, Call: "UndoRequeue", Resource: "dead task " + r.ID.String(), RequestID: r.RequestID}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) { return nil, b.Backend.UndoRequeue(ctx, r) })
}

// PurgeDead removes a dead task.
func (b *backend) PurgeDead(ctx context.Context, id api.DeadID) error {
	e := api.AuditEntry{Tenant: id.Tenant, Call: "PurgeDead", Resource: "dead task " + id.String()}
	return b.log.record(ctx, e, func(ctx context.Context) (any, error) { return nil, b.Backend.PurgeDead(ctx, id) })
}
