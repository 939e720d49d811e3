package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// loneCalls is how many suspects of a shard are made alone before a second owner has died with them.
// Each of them costs a commit, and the calls behind it wait. Further ones are made together first.
const loneCalls = 64

// suspect finds out which calls of an entity that has been read are suspects.
func (l *Lane) suspect(e *entry) {
	n, sh := e.actor.entity, e.shard
	if !sh.crashed {
		n.Pardon(l.cfg.Ref.Node)
		return
	}
	sh.lone += n.Suspect(l.cfg.Ref.Node, loneCalls-sh.lone)
}

// accuse has suspects of an entity noted before they are made. It reports whether there are any.
func (l *Lane) accuse(now model.Time, e *entry) bool {
	items, alone := e.actor.entity.Suspects(operationsPerHand)
	if len(items) == 0 {
		return false
	}
	if !alone || l.claimAlone(e) {
		l.take(now, e, &suspectInput{inputBase{address: e.address}})
	}
	return true
}

// suspectInput records that suspects are about to be made, or sets them aside.
type suspectInput struct{ inputBase }

func (in *suspectInput) apply(l *Lane, now model.Time, e *entry) {
	items, alone := e.actor.entity.Suspects(operationsPerHand)
	if len(items) == 0 || alone && !l.claimAlone(e) {
		l.done(in)
		l.maybeDrop(e)
		return
	}
	d, aside, why := e.actor.entity.Note(items, l.cfg.Ref.Node, now)
	b := l.record(e, in, &d)
	for i, it := range aside {
		l.bury(b, e, it.Message, why[i])
	}
	b.effects = append(b.effects, effect{kind: effNoted, entry: e})
	l.operate(now, e)
}

// noted has suspects made whose note is stored. When the entity was forgotten meanwhile, the note is found when it is read again.
func (l *Lane) noted(now model.Time, e *entry) {
	if a := e.actor; a.entity != nil {
		a.entity.Noted()
		l.operate(now, e)
	}
}

// claimAlone lets one entity of the lane at a time make a call by itself: when the process dies, the call that was noted alone is the one to blame. Others wait in line.
func (l *Lane) claimAlone(e *entry) bool {
	if l.alone != e && l.lonely() {
		if !slices.Contains(l.line, e) {
			l.line = append(l.line, e)
		}
		return false
	}
	l.alone = e
	return true
}

// lonely reports whether the entity that has the claim makes use of it.
func (l *Lane) lonely() bool {
	return l.alone != nil && !l.alone.gone && l.alone.actor.entity != nil && l.alone.actor.entity.Lonely()
}

// nextAlone gives the claim to the next entity in line, once it is free.
func (l *Lane) nextAlone(now model.Time) {
	for len(l.line) > 0 && !l.lonely() {
		e := l.line[0]
		l.line = l.line[1:]
		l.alone = nil
		if !e.gone && e.known {
			l.operate(now, e)
		}
	}
}
