package lane_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// checkChanges takes the changes that the lane reports, and checks each against the store: the
// change is durable, and the changes come in order.
func (r *rig) checkChanges(changes []model.Change) {
	r.t.Helper()
	r.changes = append(r.changes, changes...)

	for i := range changes {
		c := &changes[i]
		if c.Class == model.ClassEntity || c.Task != "" && c.Task != model.TaskStep || c.Kind == model.ChangeDead || c.Kind == model.ChangeRequeued || c.Kind == model.ChangeUndone {
			continue
		}
		was, known := r.seen[c.Run]
		switch {
		case c.Kind == model.ChangeRemoved:
			delete(r.seen, c.Run)
			continue
		case c.Kind == model.ChangeStarted || c.Kind == model.ChangeScheduled && !known:
			if known {
				r.t.Errorf("%s of %s has started twice", c.Run, c.Address.Key)
			}
		case was.Closed():
			r.t.Errorf("%s of %s is %s after it was %s", c.Run, c.Address.Key, c.Kind, was)
		}
		r.seen[c.Run] = c.Status

		row := r.row(c.Run)
		if row == nil {
			r.t.Errorf("the store has no %s of %s, which is said to be %s", c.Run, c.Address.Key, c.Kind)
		} else if c.Status.Closed() && row.Outcome.Status != c.Status {
			r.t.Errorf("%s of %s is said to be %s, the store says %s", c.Run, c.Address.Key, c.Status, row.Outcome.Status)
		}
	}
}

// noteStored notes what a batch has left in the store.
func (r *rig) noteStored(b *store.Batch, res store.Committed) {
	for _, k := range slices.Concat(b.Deletes, b.Removes) {
		delete(r.stands, k.Run)
	}
	for i := range b.Starts {
		if !slices.ContainsFunc(res.Existing, func(x store.ExistingStart) bool { return x.Index == i }) {
			r.stands[b.Starts[i].Start.Run] = model.Running
		}
	}
	for i := range b.Closes {
		r.stands[b.Closes[i].Run] = b.Closes[i].Outcome.Status
	}
}

// wantChanges compares what the changes say about runs with the store.
func (r *rig) wantChanges() {
	r.t.Helper()
	if diff := cmp.Diff(r.stands, r.seen); diff != "" && r.dead == nil {
		r.t.Errorf("changes (-stored +told):\n%s", diff)
	}
}

// tellChanges returns the changes since the last call as texts.
func (r *rig) tellChanges() (texts []string) {
	for i := range r.changes {
		c := &r.changes[i]
		text := fmt.Sprintf("%s %s %s", c.Class, c.Address.Key, c.Kind)
		if c.Reason != "" {
			text += " " + string(c.Reason)
		}
		if c.Seq > 0 {
			text += fmt.Sprint(" ", c.Seq)
		}
		texts = append(texts, text)
	}
	r.changes = nil
	return texts
}

func (r *rig) wantTold(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.tellChanges()); diff != "" {
		r.t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// The lane reports the changes of a run in order, once they are durable.
func TestChangesOfARun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.wantTold("execution a started")

	r.turn(a, steps("s1"))
	r.flush()
	r.wantTold() // the batch is in flight
	r.settle()
	r.wantTold("execution a progressed 1")

	r.signal(a, "x", "signal")
	r.send(model.Message{Kind: model.MessagePause, To: a}, "pause")
	r.settle()
	r.wantTold("execution a progressed 2", "execution a paused 3")
	r.send(model.Message{Kind: model.MessageResume, To: a}, "resume")
	r.settle()
	r.wantTold("execution a resumed 4")
	r.send(model.Message{Kind: model.MessageTerminate, To: a}, "end")
	r.settle()
	r.wantTold("execution a terminated")

	b := key("b")
	r.startRun(b)
	r.release(b, "approve")
	r.settle()
	r.wantTold("execution b started", "execution b waiting signal")
	r.signal(b, "approve", "signal again")
	r.settle()
	r.turn(b, model.Turn{Blocked: &model.Reason{Code: model.WaitMismatch}})
	r.settle()
	r.wantTold("execution b progressed 1", "execution b blocked replay_mismatch")

	r.wantChanges()
}

// A caller that begins to watch while a batch is in flight gets the changes of that batch. A list
// of executions that the caller reads at this moment does not show these changes yet.
func TestWatchBeginsDuringACommit(t *testing.T) {
	t.Parallel()
	on := false
	r := newRig(t, func(c *lane.Config) { c.WantsChanges = func() bool { return on } })
	r.start(key("a"), "a")
	r.settle()
	r.wantTold()
	r.start(key("b"), "b")
	r.flush()
	on = true
	r.settle()
	r.wantTold("execution b started")
}

// The lane reports a commit whose answer was lost, and a batch that it applies again in parts,
// once. It does not report a start whose address already has a run.
func TestChangesAreToldOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.Watched = true })
	r.join(1)
	refusals := 2
	for _, k := range []string{"a", "b", "c", "e"} {
		r.start(key(k), k)
	}
	r.refuse = func(*store.Batch) error {
		if refusals--; refusals >= 0 {
			return store.Errorf(store.Refused, "commit", "poison")
		}
		return nil
	}
	r.settle()
	r.start(key("d"), "d")
	r.flush()
	r.landUnheard()
	r.l.FinishCommit(r.now, store.Committed{}, store.Errorf(store.Unknown, "commit", "the answer was lost"))
	r.flush()
	r.settle()

	r.turn(key("d"), model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	r.start(key("d"), "again")
	r.settle()
	r.wantFacts()
	told := r.tellChanges()
	slices.Sort(told)
	if diff := cmp.Diff([]string{"execution a started", "execution b started", "execution c started", "execution d completed", "execution d started", "execution e started"}, told); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}
