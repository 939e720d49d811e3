package lane

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// A call that kills its process must not kill every process that owns its shard, one after the
// other. When the last owner of a shard has died, the calls that it left are suspects. The lane
// stores a note before it runs a suspect. If this process dies too, the next owner finds the note.
// An owner sets a call aside when two processes have died while they ran it alone.

// loneCalls is how many suspects of a shard run alone if only one owner has died with them. Each of
// them costs a commit, and the calls behind it wait. Further suspects first run together.
const loneCalls = 64

// waryFor is how long a lane is wary of the calls that come to a shard whose last owner has died.
// In this time it reads the calls that were in the store when it acquired the shard.
const waryFor = time.Minute

// isWary reports whether a call that comes from the store may be the one that killed the last owner
// of the shard. If that owner died before it had committed the call to the mailbox, nothing in the
// store says that it was running the call. So the lane runs such a call only after it has committed
// the call to the mailbox. If the call kills this process too, the next owner finds the call there,
// as a suspect.
func (l *Lane) isWary(now model.Time, sh *shard) bool {
	return sh.crashed && now < sh.since.Add(waryFor)
}

// isLeft reports whether the last owner of a crashed shard may have died of a passed call from this
// sender. If that call ran ahead of the commit that sends it, nothing in the store says so. The
// sender repeats the call from its history, and may first run a step of any length. So the time
// since the crash does not matter for a run that had started before. Such calls never run ahead.
func (l *Lane) isLeft(from model.Link, sh *shard) bool {
	if !sh.crashed || from.Run.IsZero() {
		return false
	}
	e := l.entries[from.Address]
	return e == nil || e.x == nil || e.x.Start.Run != from.Run || e.x.Start.At <= sh.since
}

// suspect finds out which calls of an entity are suspects. The lane calls it after it has read the
// entity.
func (l *Lane) suspect(e *entry) {
	n, sh := e.actor.entity, e.shard
	if !sh.crashed {
		n.Pardon(l.cfg.Ref.Node)
		return
	}
	a := e.actor
	if a.left = min(a.left, n.LastPosition()); !a.examined {
		// The lane stores calls only for entities that it has read, so all stored calls are left
		// from the last owner.
		a.examined, a.left = true, n.LastPosition()
	}
	lone := n.Suspect(l.cfg.Ref.Node, a.left, loneCalls-sh.lone+a.lone)
	sh.lone += max(0, lone-a.lone)
	a.lone = max(a.lone, lone)
}

// accuse notes the suspects of an entity before the lane runs them.
func (l *Lane) accuse(now model.Time, e *entry) {
	items, alone := e.actor.entity.Suspects(operationsPerHand)
	if len(items) > 0 && (!alone || l.solo.claim(e)) {
		l.take(now, e, &suspectInput{inputBase{address: &e.address}})
	}
}

// apply stores the note. The suspects run after the commit of the note.
func (in *suspectInput) apply(l *Lane, now model.Time, e *entry) {
	items, alone := e.actor.entity.Suspects(operationsPerHand)
	if len(items) == 0 || alone && !l.solo.claim(e) {
		l.skip(e, in)
		return
	}
	d, aside, why := e.actor.entity.Note(items, l.cfg.Ref.Node, now)
	b := l.record(e, in, &d)
	if b == nil {
		l.runNoted(now, e) // only workers have died of these calls, so there is nothing to store
		return
	}
	for i, it := range aside {
		l.keepRefused(b, e, it.Message, why[i])
	}
	b.effects = append(b.effects, effect{kind: effNoted, entry: e})
	l.operate(now, e)
}

// runNoted runs suspects whose note is stored. If the lane has dropped the entity since, it finds
// the note when it reads the entity again.
func (l *Lane) runNoted(now model.Time, e *entry) {
	if a := e.actor; a.entity != nil {
		a.entity.ReleaseNoted()
		l.operate(now, e)
	}
}

// nextSolo lets the next entity in the line run a call alone, after the entity before it has done
// so.
func (l *Lane) nextSolo(now model.Time) {
	for e := l.solo.next(); e != nil; e = l.solo.next() {
		if !e.gone && e.known {
			l.operate(now, e)
		}
	}
}
