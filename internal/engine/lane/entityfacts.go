package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// Words of FactUnlocked.
const (
	lockReleased = "released" // its section, or the run, has ended
	lockTaken    = "taken"    // by an operator
)

// entity adds the facts of a decision about an entity. A call that only waits is none: it is counted when it has been made, or refused.
func (n *noter) entity(in *input, d *core.Decision) {
	how := lockReleased
	switch in.kind {
	case inOperated:
		n.made(in.job)
	case inMessage:
		switch m := in.message; {
		case m.Kind != model.MessageCall:
			n.message(m, d)
			if m.Kind == model.MessageUnlock {
				how = lockTaken
			}
		case d.Answer.Failure != nil:
			n.add(Fact{Kind: FactCall, Name: m.Name, Outcome: Refused, Failure: d.Answer.Failure})
		}
	default:
	}
	if d.Entity == nil {
		return
	}
	row, was := &d.Entity.Entity, &n.w.lock
	if was.Locked() && row.Holder != was.Holder {
		n.add(Fact{Kind: FactUnlocked, Word: how, Since: was.Held, At: row.Changed})
	}
	if d.Granted != 0 {
		n.add(Fact{Kind: FactLocked, Since: d.Granted, At: row.Held})
	}
}

// made tells of the calls that a worker has made.
func (n *noter) made(j *job) {
	made := min(len(j.items), len(j.result.Results))
	for i, it := range j.items[:made] {
		f := Fact{Kind: FactCall, Name: it.Message.Name, Outcome: Completed, Trace: it.Message.Trace, Since: it.At, Handed: j.since, At: j.until}
		if f.Failure = j.result.Results[i].Failure; f.Failure != nil {
			f.Outcome = Failed
		}
		n.add(f)
	}
	n.add(Fact{Kind: FactHandOver, N: made, Since: j.since, At: j.until})
}

// EntityStates is how the entities of a type stand that a lane has in memory.
type EntityStates struct {
	Loaded  int
	Calls   int // that wait, and that no worker has
	Locked  int
	Waiters int // sections that wait for a lock
}

func (l *Lane) entityStates() map[string]EntityStates {
	all := map[string]EntityStates{}
	for _, e := range l.entries {
		if !e.isEntity() || e.actor.entity == nil {
			continue
		}
		s := all[e.address.Type]
		s.Loaded++
		if e.actor.entity.Row.Locked() {
			s.Locked++
		}
		for _, it := range e.actor.entity.Mail() {
			switch {
			case it.Message.Kind == model.MessageLock:
				s.Waiters++
			case !it.Begun():
				s.Calls++
			}
		}
		all[e.address.Type] = s
	}
	return all
}
