package service

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	maxRead    = 64 << 20 // bytes of a history that the service reads for a past
	resetTries = 10       // how often takeOver reads the history at most
	deletePage = 500      // runs per commit
)

// Fork starts another execution with the past of a run.
func (s *Service) Fork(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	to := r.Source.Address
	to.Key = r.Key
	v := s.check("fork")
	v.Address(to)
	v.NoBatch(to)
	v.Workflow(r.Source.Address, "steps to fork from: submit it again")
	v.past(&r)
	if err := v.Err(); err != nil {
		return api.PastReply{}, err
	}

	h, err := s.read(ctx, "fork", r.Source)
	if err != nil {
		return api.PastReply{}, err
	}
	plan, err := s.cut(ctx, h, history.Fork, &r)
	if err != nil {
		return api.PastReply{}, err
	}

	m := &model.Message{
		Kind: model.MessageStart, To: to, Input: h.Start.Input, Reuse: r.Reuse, RequestID: r.RequestID, Labels: h.Start.Labels, Past: &plan.Past, Asked: digestOfPast("fork", &r),
	}
	return s.begin(ctx, m, plan, r.DryRun)
}

// Retry continues a closed execution that did not complete. A task has no step to continue from, so
// Retry schedules it again.
func (s *Service) Retry(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	if strings.HasPrefix(r.Source.Address.Type, model.TaskPrefix) {
		return s.retryTask(ctx, &r)
	}
	return s.takeOver(ctx, "retry", history.Retry, r)
}

// Reset replaces a run by a new run, which starts from an earlier place in the history.
func (s *Service) Reset(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	v := s.check("reset")
	v.Workflow(r.Source.Address, "steps to reset to: requeue it, or submit it again")
	if err := v.Err(); err != nil {
		return api.PastReply{}, err
	}
	return s.takeOver(ctx, "reset", history.Reset, r)
}

// takeOver starts a run in place of the current run. If an open run continues while takeOver reads
// its history, takeOver reads the history again.
func (s *Service) takeOver(ctx context.Context, op string, mode history.Mode, r api.PastRequest) (api.PastReply, error) {
	v := s.check(op)
	v.NoBatch(r.Source.Address)
	v.past(&r)
	if err := v.Err(); err != nil {
		return api.PastReply{}, err
	}

	for try := 1; ; try++ {
		h, err := s.read(ctx, op, r.Source)
		if err != nil {
			return api.PastReply{}, wayOut(err)
		}

		open := !h.Outcome.Status.Closed()
		if mode == history.Retry && open {
			if err := s.stuck(ctx, op, &h.Start); err != nil {
				return api.PastReply{}, err
			}
		}

		if mode == history.Retry && (open || h.Outcome.Status == model.Completed) {
			return api.PastReply{}, fault.WithHint(fault.New(fault.Conflict, "retry of %s: it is %s", h.Start.Address, h.Outcome.Status),
				"only what failed, was cancelled or terminated can be retried; a reset starts again from a place that you name")
		}

		plan, err := s.cut(ctx, h, mode, &r)
		if err != nil {
			return api.PastReply{}, err
		}
		if open {
			plan.Past.Next = int64(len(h.Events)) + 1
		}

		m := &model.Message{
			Kind: model.MessageStart, To: h.Start.Address, ToRun: h.Start.Run, Input: h.Start.Input, RequestID: r.RequestID, Labels: h.Start.Labels, Past: &plan.Past,
			Asked: digestOfPast(op, &r),
		}

		if try > 1 && r.RequestID != "" {
			// Use another request id, because the owner remembers that it refused the previous one.
			m.RequestID = fmt.Sprintf("%s#%d", r.RequestID, try)
		}
		reply, a, err := s.beginAnswered(ctx, m, plan, r.DryRun)
		// A misused request id is a conflict too, but reading again does not help.
		misused := a.Failure != nil && a.Failure.Type == model.FailureMisused
		if !open || !fault.Is(err, fault.Conflict) || misused || try == resetTries {
			return reply, err
		}
	}
}

// Import stores a run of another store.
func (s *Service) Import(ctx context.Context, r api.ImportRequest) (api.PastReply, error) {
	h := &r.History
	to := h.Start.Address
	if r.Key != "" {
		to.Key = r.Key
	}
	v := s.check("import")
	v.Address(to)
	v.NoBatch(to)
	if to.Tenant != r.Tenant {
		v.Wrong("the history is of tenant %q, not of %q", to.Tenant, r.Tenant)
	}
	v.Payload("input", h.Start.Input)
	v.Payload("output", h.Outcome.Output)
	v.RequestID(r.RequestID)
	v.Labels(h.Start.Labels)

	for i := range h.Events {
		e := &h.Events[i]
		v.Payload(fmt.Sprintf("input of event %d", e.Seq), e.Input)
		v.Payload(fmt.Sprintf("output of event %d", e.Seq), e.Output)
		switch {
		case e.Target.IsZero():
		case e.Target.Tenant != to.Tenant:
			v.Wrong("event %d is about %s, of another tenant", e.Seq, e.Target)
		default:
			v.Address(e.Target) // the code may ask for the outcome of this address
		}
		if e.Kind == model.EventLabeled {
			v.Label(e.Name, string(e.Output.Data))
		}
	}

	if h.Outcome.Status == model.Continued {
		v.Wrong("run %s continued as run %s: export and import that one", h.Start.Run, h.Outcome.Next)
	}
	if err := v.Err(); err != nil {
		return api.PastReply{}, err
	}
	plan := history.Whole(h)

	if !h.Outcome.Status.Closed() {
		var err error
		if plan, err = history.Cut(h, &history.Request{Mode: history.Import, Child: s.childOf(ctx)}); err != nil {
			return api.PastReply{}, err
		}
	}

	m := &model.Message{
		Kind: model.MessageStart, To: to, Input: h.Start.Input, Reuse: r.Reuse, RequestID: r.RequestID, Labels: h.Start.Labels, Past: &plan.Past,
		Asked: digestOf("import", h.Start.Address.Path(), h.Start.Run.String(), strconv.Itoa(len(h.Events)), h.Outcome.Status.String()),
	}

	return s.begin(ctx, m, plan, r.DryRun)
}

// begin asks the owner to start a run with a past.
func (s *Service) begin(ctx context.Context, m *model.Message, p *history.Plan, dry bool) (api.PastReply, error) {
	reply, _, err := s.beginAnswered(ctx, m, p, dry)
	return reply, err
}

// beginAnswered is like begin, and also returns the owner's answer.
func (s *Service) beginAnswered(ctx context.Context, m *model.Message, p *history.Plan, dry bool) (api.PastReply, model.Answer, error) {
	reply := api.PastReply{Address: m.To, Position: p.Position, Total: p.Total, Blanks: p.Blanks, Added: p.Added, Again: p.Again}
	if dry {
		return reply, model.Answer{}, nil
	}
	a, err := s.send(ctx, m)
	reply.Run, reply.Status = a.Run, a.Status
	return reply, a, err
}

// digestOfPast returns a digest of a request about a past, as the client sent it.
func digestOfPast(op string, r *api.PastRequest) []byte {
	parts := []string{op, r.Source.Address.Path(), r.Source.Run.String(), r.Before, strconv.FormatInt(r.After, 10), strconv.FormatBool(r.Placed)}
	for i := range r.Edits {
		e := &r.Edits[i]
		parts = append(parts, e.Step, strconv.FormatInt(e.Position, 10))
		if e.Output.Comparable() {
			parts = append(parts, string(e.Output.Digest()))
		}
	}
	return digestOf(parts...)
}

// digestOf returns a digest of what a client asks for. Some requests become a message that depends
// on stored data, so the repetition of a request may become another message. If the owner has seen
// the request id before, it compares the digests to find out whether the request is the same.
func digestOf(parts ...string) []byte {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return h.Sum(nil)[:16]
}

// cut builds the past of the new run.
func (s *Service) cut(ctx context.Context, h *model.History, mode history.Mode, r *api.PastRequest) (*history.Plan, error) {
	c := history.Request{Mode: mode, Before: r.Before, After: r.After, Placed: r.Placed, Child: s.childOf(ctx)}
	for _, e := range r.Edits {
		c.Edits = append(c.Edits, history.Edit(e))
	}
	return history.Cut(h, &c)
}

// childOf returns a function that looks up the status of the current run of an address.
func (s *Service) childOf(ctx context.Context) func(model.Address) (model.Status, bool, error) {
	return func(a model.Address) (model.Status, bool, error) {
		row, err := s.store.LoadExecution(ctx, s.shard(a), a, model.RunID{})
		if err != nil || row == nil {
			return 0, false, err
		}
		return row.Outcome.Status, true, nil
	}
}

// read reads the whole committed history of a run.
func (s *Service) read(ctx context.Context, op string, t api.Target) (*model.History, error) {
	row, err := s.execution(ctx, op, t)
	if err != nil {
		return nil, err
	}
	return s.readRun(ctx, op, row)
}

// readRun reads the events of a run whose row was read.
func (s *Service) readRun(ctx context.Context, op string, row *store.Execution) (*model.History, error) {
	return s.readEvents(ctx, op, row, math.MaxInt64)
}

// readEvents is like readRun, but need not read the events after the position last.
func (s *Service) readEvents(ctx context.Context, op string, row *store.Execution, last int64) (*model.History, error) {
	h := &model.History{Start: row.Start, Events: slices.Clip(row.Start.Carried), Outcome: row.Outcome}
	size := 0
	for int64(len(h.Events)) < last {
		page, err := s.store.LoadEvents(ctx, store.RunKey{Shard: row.Shard, Run: row.Start.Run}, int64(len(h.Events)), historyPage, 4<<20)
		if err != nil {
			return nil, err
		}

		if len(page) == 0 {
			// If the run was deleted during the read, events are missing too. Check that it still
			// exists.
			_, err := s.execution(ctx, op, api.Target{Address: row.Start.Address, Run: row.Start.Run})
			return h, err
		}

		for i := range page {
			if want := int64(len(h.Events) + i + 1); page[i].Seq != want {
				return nil, fault.New(fault.Corrupt, "%s: event %d of %s stands where %d belongs", op, page[i].Seq, row.Start.Run, want)
			}
			size += page[i].Size()
		}

		if size > maxRead {
			return nil, fault.New(fault.Exhausted, "%s: the history of %s has more than %d bytes", op, row.Start.Run, maxRead)
		}
		h.Events = append(h.Events, page...)
	}
	return h, nil
}

// past checks the fields that all requests about a past have.
func (v validator) past(r *api.PastRequest) {
	v.Address(r.Source.Address)
	v.RequestID(r.RequestID)
	if r.Before != "" && r.Placed {
		v.Wrong("both a step and a position are set: set only one")
	}
	for _, e := range r.Edits {
		if e.Step == "" && e.Position <= 0 {
			v.Wrong("an edited result needs the name of its step or its position")
		}
		v.Payload("result of "+e.Step, e.Output)
	}
}

// Delete removes a closed execution, or only one closed run of it if the target names a run. It
// deletes the oldest runs first and the current run last, so that a repeated call after a failure
// finds the rest. With r.Force it removes an execution in any state, or an entity; see remove.
func (s *Service) Delete(ctx context.Context, r api.DeleteRequest) (api.DeleteReply, error) {
	v := s.check("delete")
	v.RequestID(r.RequestID)
	if err := v.Err(); err != nil {
		return api.DeleteReply{}, err
	}
	if r.Force {
		return s.remove(ctx, &r)
	}

	row, err := s.execution(ctx, "delete", r.Target)
	if err != nil {
		return api.DeleteReply{}, wayOut(err)
	}

	if !row.Outcome.Status.Closed() {
		if err := s.stuck(ctx, "delete", &row.Start); err != nil {
			return api.DeleteReply{}, err
		}
		return api.DeleteReply{}, fault.WithHint(fault.New(fault.Conflict, "delete of %s: it is running", r.Target.Address),
			"cancel it and wait for its end first")
	}

	runs := []model.RunID{row.Start.Run}
	if r.Target.Run.IsZero() {
		if runs, err = s.chain(ctx, row); err != nil {
			return api.DeleteReply{}, wayOut(err)
		}
	}

	reply := api.DeleteReply{Runs: runs}
	if r.DryRun {
		return reply, nil
	}

	for n, page := range slices.Collect(slices.Chunk(runs, deletePage)) {
		m := &model.Message{Kind: model.MessageDelete, To: r.Target.Address, Runs: page, RequestID: r.RequestID, Asked: digestOf("delete", r.Target.Run.String())}
		if n > 0 && r.RequestID != "" {
			m.RequestID = fmt.Sprintf("%s#%d", r.RequestID, n+1)
		}
		if _, err := s.send(ctx, m); err != nil {
			return api.DeleteReply{}, err
		}
	}

	return reply, nil
}

// chain returns all runs that have had the address of a run, oldest first: earlier runs of its
// chain, runs that a later start replaced, and the run itself. A deleted run in between does not
// hide older runs, because each run names its predecessor, its successor, and the first run. One
// case remains: a run that was replaced by a start has no successor, so it can only be found
// through the run that replaced it.
func (s *Service) chain(ctx context.Context, row *store.Execution) ([]model.RunID, error) {
	a, last := row.Start.Address, row.Start.Run
	looked := map[model.RunID]bool{{}: true, last: true}
	var before []model.RunID
	for found := []*store.Execution{row}; len(found) > 0; found = found[1:] {
		start := &found[0].Start
		for _, run := range append([]model.RunID{start.Previous, start.Replaced, start.First, found[0].Outcome.Next}, start.Earlier...) {
			if looked[run] {
				continue
			}
			looked[run] = true
			other, err := s.store.LoadExecution(ctx, s.shard(a), a, run)
			if err != nil {
				return nil, err
			}
			if other != nil && other.Start.Address == a {
				found, before = append(found, other), append(before, run)
			}
		}
	}

	// Ids are in the order in which runs started.
	slices.SortFunc(before, func(x, y model.RunID) int { return bytes.Compare(x[:], y[:]) })
	return append(before, last), nil
}
