package scenario

import (
	"cmp"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
)

// SplitWorker returns the parts of a worker's name: its own name, the node where it works, and the
// node that made the claim.
func SplitWorker(name string) (worker, works, makes string) {
	worker, works, _ = strings.Cut(name, "@")
	works, makes, lent := strings.Cut(works, "/")
	if !lent {
		makes = works
	}
	return worker, works, makes
}

// Users submit tasks, and workflows schedule tasks. Hands (hand.go of package cluster) execute the
// tasks. The oracle checks these rules (parts of E8–E11, E16–E27, E30–E32, E37 and E43). Every task
// ends once. One worker holds a task at a time, and the number of attempts never exceeds the policy
// of the task. Only the report of the holder takes effect, and this report takes effect once. A
// worker gets a task only after the claim is durable, and only if the worker offers the task. A
// live worker keeps the task that it executes until a time-out, unless the run no longer needs the
// task. A task becomes a dead task if and only if it fails permanently. In the end no slot is in
// use.

// Names that tasks have.
var (
	TaskKinds  = [...]string{"ka", "kb"}
	TaskQueues = [...]string{"qa", "qb"}
	TaskKeys   = [...]string{"t0", "t1", "t2", "t3", "t4"}
)

// Work describes how a worker executes a task.
type Work struct {
	Fails     int // how many attempts fail
	Permanent bool
	Returns   float64 // probability that a worker gives an attempt back
	Took      int64
}

// Payload encodes what the worker does, as the input of a task.
func (w Work) Payload() model.Payload {
	flags := byte(0)
	if w.Permanent {
		flags |= 1
	}
	if w.Returns > 0 {
		flags |= 2
	}
	return model.Payload{Data: []byte{'w', byte(w.Fails), flags, byte(w.Took >> 16), byte(w.Took >> 8), byte(w.Took)}}
}

// WorkOf decodes the input of a task.
func WorkOf(p model.Payload) Work {
	d := p.Data
	w := Work{Fails: int(d[1]), Permanent: d[2]&1 != 0, Took: int64(d[3])<<16 | int64(d[4])<<8 | int64(d[5])}
	if d[2]&2 != 0 {
		w.Returns = 0.4
	}
	return w
}

// errand is a task that a program or a user will schedule.
type errand struct {
	Spec *model.TaskSpec
	Work model.Payload
}

func (s *Scenario) drawErrand() errand {
	w := Work{Returns: kernel.OneOf(s, 0.0, 0.0, 0.4), Took: kernel.OneOf(s, 0, s.Between(0, 3*kernel.Millisecond), s.Between(0, 40*kernel.Millisecond))}
	if s.Chance(0.4) {
		w.Fails, w.Permanent = 1+s.Pick(3), s.Chance(0.15)
	}
	ms := func(lo, hi int64) time.Duration { return kernel.Microseconds(s.Between(lo, hi) * kernel.Millisecond) }

	spec := &model.TaskSpec{
		Kind: kernel.OneOf(s, TaskKinds[:]...), Queue: kernel.OneOf(s, TaskQueues[:]...), Priority: s.Pick(3), Fair: kernel.OneOf(s, "", "x", "y"),
		Retry: model.Retry{MaxAttempts: kernel.OneOf(s, 0, 1, 2, 3, 6), Initial: ms(0, 30) + 1, Max: 60 * time.Millisecond, Jitter: kernel.OneOf[int64](s, 0, 500)},
	}

	if s.Chance(0.2) {
		spec.ToStart = ms(5, 400)
	}
	if s.Chance(0.3) {
		spec.Silence = ms(5, 100)
	}
	if s.Chance(0.2) {
		spec.Total = ms(50, 1500)
	}
	if s.Chance(0.2) {
		spec.Delay = ms(0, 50)
	}

	if s.Chance(0.3) {
		spec.ToClose = ms(100, 300)
		if spec.Retry.MaxAttempts > 0 {
			spec.ToClose = ms(2, 100) // endless attempts might all time out
		}
	}

	if s.Has(Lending) && spec.Silence > 0 { // a heartbeat of a lent worker needs two messages
		spec.Silence += 50 * time.Millisecond
	}

	if s.Has(Gates) {
		spec.Breaker = kernel.OneOf(s, "", BreakerNames[0])
		if s.Chance(0.3) {
			spec.Limits = []string{kernel.OneOf(s, "named/x", "named/y")}
		}
	}

	return errand{spec, w.Payload()}
}

// TaskAddress returns the address of a task without a workflow.
func (s *Scenario) TaskAddress(i int) model.Address {
	return model.Address{Tenant: Tenant, Type: model.TaskPrefix + s.errands[i].Spec.Kind, Key: TaskKeys[i]}
}

// Submission returns the start of a task without a workflow.
func (s *Scenario) Submission(i int) model.Message {
	spec := *s.errands[i].Spec
	return model.Message{
		Kind: model.MessageStart, To: s.TaskAddress(i), Input: s.errands[i].Work, Task: &spec,
		Reuse: kernel.OneOf(s, model.ReturnExisting, model.ReuseIfFailed, model.ReuseAlways, model.ReuseAlways),
	}
}

// CompareClaims orders claims.
func CompareClaims(a, b model.ClaimRef) int {
	return cmp.Or(a.Run.Compare(b.Run), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Claim, b.Claim))
}
