package memory

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// The store copies all values that it receives and returns, down to the last byte. A test looks at
// all fields of the values by reflection, so it fails if a clone function forgets a new field of
// the model.

func clonePayload(p model.Payload) model.Payload {
	p.Data = bytes.Clone(p.Data)
	return p
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func cloneEvent(e model.Event) model.Event {
	e.Input, e.Output, e.Failure, e.Task = clonePayload(e.Input), clonePayload(e.Output), clonePointer(e.Failure), cloneTask(e.Task)
	e.Watcher, e.Locks = clonePointer(e.Watcher), slices.Clone(e.Locks)
	return e
}

func cloneEvents(in []model.Event) []model.Event {
	if in == nil {
		return nil
	}
	out := make([]model.Event, len(in))
	for i := range in {
		out[i] = cloneEvent(in[i])
	}
	return out
}

func cloneStart(s model.Start) model.Start {
	s.Input, s.Origin, s.Carried, s.Seeds = clonePayload(s.Input), bytes.Clone(s.Origin), cloneEvents(s.Carried), slices.Clone(s.Seeds)
	s.Labels, s.Earlier, s.Task = slices.Clone(s.Labels), slices.Clone(s.Earlier), cloneTask(s.Task)
	s.Terms, s.Cause = cloneTerms(s.Terms), clonePointer(s.Cause)
	return s
}

func cloneOutcome(o model.Outcome) model.Outcome {
	o.Output, o.Failure = clonePayload(o.Output), clonePointer(o.Failure)
	return o
}

// cloneMessage copies a message. The position, time and kind of the events in With are not part of
// a stored message, so the copy does not have them.
func cloneMessage(m model.Message) model.Message {
	m.Input, m.Failure, m.With = clonePayload(m.Input), clonePointer(m.Failure), cloneEvents(m.With)
	m.Labels, m.Task, m.Terms = slices.Clone(m.Labels), cloneTask(m.Task), cloneTerms(m.Terms)
	for i := range m.With {
		m.With[i].Seq, m.With[i].At, m.With[i].Kind = 0, 0, 0
	}
	m.Past, m.Runs = clonePast(m.Past), slices.Clone(m.Runs)

	if m.DeadTask = clonePointer(m.DeadTask); m.DeadTask != nil && m.DeadTask.Input != nil {
		p := clonePayload(*m.DeadTask.Input)
		m.DeadTask.Input = &p
	}

	if m.Report = clonePointer(m.Report); m.Report != nil {
		m.Report.Output, m.Report.Failure = clonePayload(m.Report.Output), clonePointer(m.Report.Failure)
	}

	if m.Write = clonePointer(m.Write); m.Write != nil {
		m.Write.Items = slices.Clone(m.Write.Items)
		for i := range m.Write.Items {
			m.Write.Items[i].Value = clonePayload(m.Write.Items[i].Value)
		}
	}

	return m
}

func clonePast(p *model.Past) *model.Past {
	if p = clonePointer(p); p == nil {
		return nil
	}
	p.Events, p.Seeds, p.Origin = slices.Clone(p.Events), slices.Clone(p.Seeds), bytes.Clone(p.Origin)
	p.Earlier = slices.Clone(p.Earlier)
	p.Output, p.Failure = clonePayload(p.Output), clonePointer(p.Failure)
	for i := range p.Events {
		e := cloneEvent(p.Events[i].Event)
		e.Seq, e.At, e.Kind = 0, 0, 0
		p.Events[i].Event = e
	}
	return p
}

func cloneExecution(e store.Execution) store.Execution {
	e.Start, e.Outcome = cloneStart(e.Start), cloneOutcome(e.Outcome)
	e.Waits, e.Blocked = slices.Clone(e.Waits), clonePointer(e.Blocked)
	return e
}

func cloneMessageRow(r store.MessageRow) store.MessageRow {
	r.Message, r.Damaged = readBack(r.Message, r.Damaged, "message %d from shard %d to shard %d", r.Seq, r.From, r.To)
	return r
}

func cloneInboxRow(r store.InboxRow) store.InboxRow {
	r.Message, r.Damaged = readBack(r.Message, r.Damaged, "request %s in the inbox of shard %d", r.ID, r.Shard)
	return r
}

// readBack returns a message as a read from disk would return it. If this build cannot read the
// message, readBack returns it as damaged. row names the row in the error.
func readBack(m model.Message, d *model.Damaged, row string, args ...any) (model.Message, *model.Damaged) {
	if d == nil && m.Kind.Known() {
		return cloneMessage(m), nil
	}
	raw := model.AppendBody(nil, &m, d)
	m, err := model.DecodeMessage(raw)
	if err != nil {
		return m, model.Damage(raw, fmt.Errorf("%s: %w", fmt.Sprintf(row, args...), err))
	}
	return m, nil
}

func cloneEntity(n model.Entity) model.Entity {
	n.State, n.Log = clonePayload(n.State), slices.Clone(n.Log)
	for i := range n.Log {
		n.Log[i].Input, n.Log[i].Failure = clonePayload(n.Log[i].Input), clonePointer(n.Log[i].Failure)
	}
	return n
}

func cloneItem(i model.MailboxItem) model.MailboxItem {
	i.Message, i.Damaged = readBack(i.Message, i.Damaged, "item %d of the mailbox", i.Seq)
	return i
}

func cloneReply(r store.Reply) store.Reply {
	r.Body, r.Damaged = bytes.Clone(r.Body), r.Damaged.Clone()
	return r
}

func cloneSpec(t model.TaskSpec) model.TaskSpec {
	t.Limits, t.Fences, t.Retry.Final, t.Same = slices.Clone(t.Limits), slices.Clone(t.Fences), slices.Clone(t.Retry.Final), clonePointer(t.Same)
	return t
}

func cloneTask(t *model.TaskSpec) *model.TaskSpec {
	if t == nil {
		return nil
	}
	c := cloneSpec(*t)
	return &c
}

func cloneTerms(t *model.Terms) *model.Terms {
	if t = clonePointer(t); t != nil {
		if t.Retry = clonePointer(t.Retry); t.Retry != nil {
			t.Retry.Final = slices.Clone(t.Retry.Final)
		}
	}
	return t
}

func cloneDeadTask(d model.DeadTask) model.DeadTask {
	d.Spec, d.Input, d.Failed, d.Failure = cloneSpec(d.Spec), clonePayload(d.Input), slices.Clone(d.Failed), clonePointer(d.Failure)
	d.Requeued.Input = bytes.Clone(d.Requeued.Input)
	return d
}

func cloneDead(r store.DeadRow) store.DeadRow {
	r.Body = cloneDeadTask(r.Body)
	return r
}

func cloneDatum(d store.TaskDatum) store.TaskDatum {
	d.Value = clonePayload(d.Value)
	return d
}
