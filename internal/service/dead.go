package service

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// ListDead returns dead tasks.
func (s *Service) ListDead(ctx context.Context, r api.DeadRequest) (api.DeadPage, error) {
	q, err := s.deadQuery(&r)
	if err != nil {
		return api.DeadPage{}, err
	}
	found, err := s.store.ListDead(ctx, q)
	if err != nil {
		return api.DeadPage{}, err
	}

	page := api.DeadPage{Tasks: make([]api.DeadTask, len(found.Rows))}
	for i := range found.Rows {
		d := deadTask(&found.Rows[i])
		d.Body.Input, d.Body.Failed = model.Payload{}, nil
		page.Tasks[i] = d
	}

	if found.More {
		last := found.Rows[len(found.Rows)-1].Place()
		page.Cursor = cursor(last.At, last.Run, last.Task)
	}

	return page, nil
}

// CountDead counts dead tasks.
func (s *Service) CountDead(ctx context.Context, r api.DeadRequest) (int64, error) {
	q, err := s.deadQuery(&r)
	if err != nil {
		return 0, err
	}
	return s.store.CountDead(ctx, q)
}

// GroupDead groups dead tasks by activity and failure.
func (s *Service) GroupDead(ctx context.Context, r api.DeadRequest) ([]api.DeadGroup, error) {
	q, err := s.deadQuery(&r)
	if err != nil {
		return nil, err
	}
	found, err := s.store.GroupDead(ctx, q, q.Limit)
	groups := make([]api.DeadGroup, len(found))
	for i := range found {
		g := &found[i]
		groups[i] = api.DeadGroup{Activity: g.Kind, Fingerprint: g.Fingerprint, Count: g.Count, First: g.First, Last: g.Last, Message: g.Message}
	}
	return groups, err
}

// ShowDead returns a dead task.
func (s *Service) ShowDead(ctx context.Context, id api.DeadID) (api.DeadTask, error) {
	row, err := s.deadRow(ctx, "show", id)
	if err != nil {
		return api.DeadTask{}, err
	}
	return deadTask(row), nil
}

// appears is how long the service waits for the effect of a message that is in flight to another
// shard. Even if the service does not wait long enough, the message takes effect later.
const appears = 5 * time.Second

// Requeue schedules a dead task again.
func (s *Service) Requeue(ctx context.Context, r api.RequeueRequest) (api.RequeueReply, error) {
	v := s.check("requeue")
	v.RequestID(r.RequestID)
	if r.Input != nil {
		v.Payload("input", *r.Input)
	}
	if err := v.Err(); err != nil {
		return api.RequeueReply{}, err
	}

	row, err := s.deadRow(ctx, "requeue", r.ID)
	if err != nil {
		return api.RequeueReply{}, err
	}
	want := digestOfRequeue(&r)
	if reply, repeated, err := s.requeuedBefore(ctx, row, r.RequestID, want); repeated || err != nil {
		return reply, err
	}

	d := deadTask(row)
	ref, before := d.Ref(), row.Body.Requeued
	o := &model.DeadTaskOrder{Do: model.DeadTaskRequeue, Ref: ref, Input: r.Input}

	if r.Again {
		if err := s.checkRequeueClosed(ctx, &d); err != nil {
			return api.RequeueReply{}, err
		}
		o.Count, o.Run = row.Requeued, before.Run
	}

	if r.DryRun {
		dead := core.StoredDeadTask{Count: row.Requeued, Body: row.Body}
		last, err := dead.FindRequeue(o) // as the owner does
		switch {
		case err != nil:
			return api.RequeueReply{}, err
		case !last.IsZero():
			return api.RequeueReply{Address: last.Address, Run: last.Run, Existing: true}, nil
		}
		return api.RequeueReply{Address: ref.RequeueAddress(row.Body.Spec.Kind, o.Count+1)}, nil
	}

	a, err := s.send(ctx, &model.Message{Kind: model.MessageRequeue, To: ref.Address, RequestID: r.RequestID, DeadTask: o, Asked: want})
	if err != nil {
		return api.RequeueReply{}, err
	}
	reply := api.RequeueReply{Address: ref.RequeueAddress(row.Body.Spec.Kind, o.Count+1), Run: a.Run, Existing: a.Existing}

	if a.Existing {
		if a.Requeue == 0 && before.Run != a.Run { // the task was requeued after the read
			if row, err = s.deadRow(ctx, "requeue", r.ID); err != nil {
				return reply, err
			}
		}
		reply.Address, err = s.requeuedTo(ctx, row, &a)
		return reply, err
	}

	return reply, s.await(ctx, func(ctx context.Context) (bool, error) {
		run, err := s.store.LoadExecution(ctx, s.shard(reply.Address), reply.Address, reply.Run)
		return run != nil, err
	})
}

// digestOfRequeue returns a digest of the content of a requeue. The digest includes the dead task,
// because several dead tasks may have the same address.
func digestOfRequeue(r *api.RequeueRequest) []byte {
	parts := []string{"requeue", r.ID.Run.String(), r.ID.Task}
	if r.Input != nil && r.Input.Comparable() {
		parts = append(parts, string(r.Input.Digest()))
	} else if r.Input != nil {
		parts = append(parts, "another input")
	}
	return digestOf(parts...)
}

// requeuedBefore finds out whether a requeue repeats an earlier request, and what the answer was.
// The stored answer decides, and not the current state of the dead task: other requeues or an undo
// may have followed that request.
func (s *Service) requeuedBefore(ctx context.Context, row *store.DeadRow, request string, want []byte) (reply api.RequeueReply, repeated bool, err error) {
	if request == "" {
		return reply, false, nil
	}
	found, err := s.store.LoadReplies(ctx, []store.RequestKey{{Shard: row.Shard, Address: row.Body.Address, ID: request}})
	if err != nil || len(found) == 0 {
		return reply, false, err
	}

	a, err := model.DecodeAnswer(found[0].Body)
	if err != nil {
		return reply, false, fault.New(fault.Corrupt, "requeue: the answer to request %q of %s: %w", request, row.Body.Address, err)
	}
	this := model.Message{Kind: model.MessageRequeue, To: row.Body.Address, RequestID: request, DeadTask: &model.DeadTaskOrder{}, Asked: want}
	if f := core.MisuseOfAnswered(&this, &a); f != nil {
		return reply, true, fault.New(fault.ParseKind(f.Kind), "%s", f.Message)
	}

	if f := a.Failure; f != nil {
		return reply, true, fault.New(fault.ParseKind(f.Kind), "%s", f.Message)
	}
	reply = api.RequeueReply{Run: a.Run, Existing: a.Existing}
	reply.Address, err = s.requeuedTo(ctx, row, &a)
	return reply, true, err
}

// requeuedTo returns the address of the run that an answer to a requeue of the dead task names. The
// answer says which requeue of the task has begun that run, unless a build without that field gave
// the answer. In that case requeuedTo tries the addresses of all requeues: the row names only the
// run of the last requeue, and does not count a requeue that was undone. If the run was deleted, no
// address has it, and requeuedTo returns the address of the last requeue.
func (s *Service) requeuedTo(ctx context.Context, row *store.DeadRow, a *model.Answer) (model.Address, error) {
	d, last := deadTask(row), row.Body.Requeued
	ref, kind := d.Ref(), row.Body.Spec.Kind
	switch {
	case ref.Alone():
		return ref.Address, nil
	case a.Requeue > 0:
		return ref.RequeueAddress(kind, a.Requeue), nil
	case last.IsZero():
		last.Address = ref.RequeueAddress(kind, row.Requeued+1)
	case last.Run == a.Run:
		return last.Address, nil
	}

	for n := row.Requeued + 1; n > 0; n-- {
		to := ref.RequeueAddress(kind, n)
		if x, err := s.store.LoadExecution(ctx, s.shard(to), to, a.Run); err != nil || x != nil && x.Start.Address == to {
			return to, err
		}
	}

	return last.Address, nil
}

// UndoRequeue undoes a requeue.
func (s *Service) UndoRequeue(ctx context.Context, r api.UndoRequest) error {
	v := s.check("undo of a requeue")
	v.RequestID(r.RequestID)
	if err := v.Err(); err != nil {
		return err
	}
	row, err := s.deadRow(ctx, "undo", r.ID)
	if err != nil {
		return err
	}

	d, q := deadTask(row), row.Body.Requeued
	if q.IsZero() {
		return fault.New(fault.Conflict, "undo: dead task %s is not requeued", &d)
	}
	o := &model.DeadTaskOrder{Do: model.DeadTaskUndo, Ref: d.Ref(), Count: row.Requeued, Run: q.Run}
	if _, err := s.send(ctx, &model.Message{Kind: model.MessageRequeue, To: q.Address, RequestID: r.RequestID, DeadTask: o, Asked: digestOf("undo", r.ID.Run.String(), r.ID.Task)}); err != nil {
		return err
	}

	return s.await(ctx, func(ctx context.Context) (bool, error) {
		row, err := s.store.LoadDead(ctx, row.DeadKey)
		return row == nil || row.Body.Requeued.Run != q.Run, err
	})
}

// PurgeDead removes a dead task. If the task was requeued, PurgeDead returns a conflict while the
// run of the requeue is open. It also returns a conflict if that run does not exist and the requeue
// is less than a minute old, because the run may still start. If the body of the dead task is
// damaged, PurgeDead cannot find out whether the task was requeued, and removes it. It does not
// remove a task whose body a newer build has written. It does nothing if there is no such task.
func (s *Service) PurgeDead(ctx context.Context, id api.DeadID) error {
	row, err := s.deadRow(ctx, "purge", id)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil
	case row != nil && fault.Is(err, fault.Corrupt) && !errors.Is(err, model.ErrNewer):
		return s.purgeDamaged(ctx, row)
	case err != nil:
		return err
	}
	d := deadTask(row)
	if err := s.checkRequeueClosed(ctx, &d); err != nil {
		return err
	}
	_, err = s.send(ctx, &model.Message{Kind: model.MessageRequeue, To: d.Body.Address, DeadTask: &model.DeadTaskOrder{Do: model.DeadTaskPurge, Ref: d.Ref(), Count: d.Requeued, Run: d.Body.Requeued.Run}})
	return err
}

// purgeDamaged removes a dead task whose body cannot be read. The type and the key of the task are
// only in that body. The tenant is also in a column. So purgeDamaged sends the order to another
// address of the same tenant and shard, and the owner of the shard removes the row.
func (s *Service) purgeDamaged(ctx context.Context, row *store.DeadRow) error {
	to, err := s.addressIn(row.Shard, row.Body.Address.Tenant)
	if err != nil {
		return err
	}
	o := &model.DeadTaskOrder{Do: model.DeadTaskPurge, Ref: model.TaskRef{Address: to, Run: row.Run, ID: row.Task}, Damaged: true}
	_, err = s.send(ctx, &model.Message{Kind: model.MessageRequeue, To: to, DeadTask: o})
	return err
}

// addressIn returns an address that belongs to a shard.
func (s *Service) addressIn(shard model.ShardID, tenant string) (model.Address, error) {
	layout := s.store.Info().Layout()
	a := model.Address{Tenant: tenant, Type: model.TaskPrefix + "damaged" + model.GroupEnding(layout.GroupOf(shard))}
	for i := range 100 * model.MaxShards { // a hash of the address decides its shard
		if a.Key = strconv.Itoa(i); layout.Shard(a) == shard {
			return a, nil
		}
	}
	return a, fault.New(fault.Internal, "no address belongs to shard %d", shard)
}

// checkRequeueClosed returns an error if a dead task must not change, because it was requeued and
// the run of that requeue is open. If that run does not exist, it may still be on its way. In that
// case the dead task must not change before the requeue is a minute old.
func (s *Service) checkRequeueClosed(ctx context.Context, d *api.DeadTask) error {
	q := d.Body.Requeued
	if q.IsZero() {
		return nil
	}
	run, err := s.store.LoadExecution(ctx, s.shard(q.Address), q.Address, q.Run)
	if err != nil {
		return err
	}

	var now model.Time
	if run == nil { // it has not started yet, or was deleted
		// The requeue was given a time of the store's clock, so compare that time with the store's
		// clock. The clock of this machine may differ.
		view, err := s.store.Members(ctx)
		if err != nil {
			return err
		}
		now = view.Now
	}

	if !engine.Purgeable(&store.DeadRow{Body: d.Body}, run, now) {
		return fault.New(fault.Conflict, "dead task %s was requeued as %s, run %s, which is open", d, q.Address, q.Run)
	}
	return nil
}

// retryTask runs a task again after it has ended without success. If it has become a dead task,
// retryTask requeues the dead task. Otherwise it starts the task again at its address.
func (s *Service) retryTask(ctx context.Context, r *api.PastRequest) (api.PastReply, error) {
	v := s.check("retry")
	v.past(r)
	if r.Before != "" || r.Placed || len(r.Edits) > 0 {
		v.Wrong("%s is a task: it has no steps to begin from or to edit", r.Source.Address)
	}
	if err := v.Err(); err != nil {
		return api.PastReply{}, err
	}

	row, err := s.execution(ctx, "retry", r.Source)
	if err != nil {
		return api.PastReply{}, wayOut(err)
	}

	if !row.Outcome.Status.Closed() {
		if err := s.stuck(ctx, "retry", &row.Start); err != nil {
			return api.PastReply{}, err
		}
	}

	if st := row.Outcome.Status; !st.Closed() || st == model.Completed {
		return api.PastReply{}, fault.New(fault.Conflict, "retry of %s: it is %s", row.Start.Address, st)
	}
	reply := api.PastReply{Address: row.Start.Address, Status: model.Running}
	dead, err := s.store.LoadDead(ctx, store.DeadKey{RunKey: store.RunKey{Shard: row.Shard, Run: row.Start.Run}, Task: model.TaskStep})

	switch {
	case err != nil:
		return api.PastReply{}, err
	case dead != nil:
		again, err := s.Requeue(ctx, api.RequeueRequest{ID: deadTask(dead).ID, RequestID: r.RequestID, DryRun: r.DryRun})
		reply.Address, reply.Run = again.Address, again.Run
		return reply, err
	case !row.Current:
		return api.PastReply{}, fault.New(fault.Conflict, "retry of run %s of %s: it is not the current one", row.Start.Run, row.Start.Address)
	case r.DryRun || row.Start.Task == nil:
		return reply, nil
	}

	spec := *row.Start.Task
	spec.Delay = 0
	if spec.Same == nil {
		spec.Same = &model.TaskOrigin{Run: row.Start.Run, Step: model.TaskStep}
	}
	a, err := s.send(ctx, &model.Message{
		Kind: model.MessageStart, To: row.Start.Address, Input: row.Start.Input, Task: &spec, Labels: row.Start.Labels, Reuse: model.ReuseIfFailed, RequestID: r.RequestID,
	})
	reply.Run, reply.Status = a.Run, a.Status

	return reply, err
}

// await waits until a message has taken effect, but for at most 5 s (the constant appears). After
// that time, or when ctx ends, it returns no error, because the message will take effect later.
func (s *Service) await(ctx context.Context, done func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, appears)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if ok, err := done(ctx); ok || err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// deadRow reads a dead task.
func (s *Service) deadRow(ctx context.Context, op string, id api.DeadID) (*store.DeadRow, error) {
	v := s.check(op + " dead task")
	v.Tenant(id.Tenant)
	if err := v.Err(); err != nil {
		return nil, err
	}
	if int(id.Shard) >= s.store.Info().Shards || id.Run.IsZero() || id.Task == "" {
		return nil, fault.New(fault.NotFound, "%s: dead task %s does not exist in this store", op, id)
	}
	row, err := s.store.LoadDead(ctx, store.DeadKey{RunKey: store.RunKey{Shard: id.Shard, Run: id.Run}, Task: id.Task})
	if row == nil && err == nil || row != nil && row.Body.Address.Tenant != id.Tenant {
		return nil, fault.New(fault.NotFound, "%s: dead task %s does not exist", op, id)
	}
	return row, err
}

func deadTask(row *store.DeadRow) api.DeadTask {
	return api.DeadTask{ID: api.DeadID{Tenant: row.Body.Address.Tenant, Shard: row.Shard, Run: row.Run, Task: row.Task}, Requeued: row.Requeued, Body: row.Body}
}

func (s *Service) deadQuery(r *api.DeadRequest) (store.DeadQuery, error) {
	q := store.DeadQuery{
		Tenant: r.Tenant, Kinds: r.Activities, Queues: r.Queues, Fingerprint: r.Fingerprint, From: r.From, To: r.To, Requeued: r.Requeued, Limit: pageSize(r.Limit),
	}
	v := s.check("list dead tasks")
	v.Tenant(q.Tenant)
	for _, name := range q.Kinds {
		v.Name("activity", name)
	}
	for _, name := range q.Queues {
		v.Name("queue", name)
	}
	if q.Fingerprint != "" {
		v.Name("fingerprint", q.Fingerprint)
	}
	if err := v.Err(); err != nil || r.Cursor == "" {
		return q, err
	}

	at, run, task, err := parseCursor("list dead tasks", r.Cursor)
	q.After = store.DeadPlace{At: at, Run: run, Task: task}
	return q, err
}
