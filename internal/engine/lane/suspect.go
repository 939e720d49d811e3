package lane

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// A call that kills its process must not kill every process that owns its shard, one after the
// other. When the last owner of a shard has died, the calls that it left are suspects: the lane
// stores a note before it runs one. If this process dies too, the next owner finds the note, and
// sets the call aside.

// loneCalls is how many suspects of a shard run alone before a second owner has died with them.
// Each of them costs a commit, and the calls behind it wait. Further suspects first run together.
const loneCalls = 64

// waryFor is how long a lane is wary of the calls that come to a shard whose last owner has died.
// In this time it reads the calls that waited in the store when it acquired the shard.
const waryFor = time.Minute

// isWary reports whether a call that comes from the store may be the one that killed the last owner
// of the shard. If that owner died before the commit that put the call into its mailbox, nothing in
// the store says that it was running the call. The lane makes such a call only after that commit.
// If the call kills this process too, the next owner finds it in the mailbox, as a suspect.
func (l *Lane) isWary(now model.Time, sh *shard) bool {
	return sh.crashed && now < sh.since.Add(waryFor)
}

// suspect finds out which calls of an entity that has been read are suspects.
func (l *Lane) suspect(e *entry) {
	n, sh := e.actor.entity, e.shard
	if !sh.crashed {
		n.Pardon(l.cfg.Ref.Node)
		return
	}
	sh.lone += n.Suspect(l.cfg.Ref.Node, loneCalls-sh.lone)
}

// accuse notes the suspects of an entity before the lane runs them.
func (l *Lane) accuse(now model.Time, e *entry) {
	items, alone := e.actor.entity.Suspects(operationsPerHand)
	if len(items) > 0 && (!alone || l.solo.claim(e)) {
		l.take(now, e, &suspectInput{inputBase{address: e.address}})
	}
}

// apply stores the note; the suspects run after its commit.
func (in *suspectInput) apply(l *Lane, now model.Time, e *entry) {
	items, alone := e.actor.entity.Suspects(operationsPerHand)
	if len(items) == 0 || alone && !l.solo.claim(e) {
		l.skip(e, in)
		return
	}
	d, aside, why := e.actor.entity.Note(items, l.cfg.Ref.Node, now)
	b := l.record(e, in, &d)
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

// nextSolo lets the next entities in line run a call alone, after the one before has.
func (l *Lane) nextSolo(now model.Time) {
	for e := l.solo.next(); e != nil; e = l.solo.next() {
		if !e.gone && e.known {
			l.operate(now, e)
		}
	}
}
