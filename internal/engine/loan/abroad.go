package loan

import (
	"iter"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
)

// Abroad is what a worker has to do with runs of other nodes: which of its slots they use, and what
// they have not been told yet. What the worker executes and has reported is known to its session,
// which passes it in. The zero value is a worker that has nothing abroad.
type Abroad struct {
	lent int                     // slots that another node may use now
	held map[model.ClaimRef]bool // claims that the board of this node does not know of
	// makers are the nodes that have handed over what is held or reported. Each counts its claims
	// as long as they are listed to it, whoever owns the runs meanwhile.
	makers map[model.ClaimRef]model.NodeID
	// reported are claims whose report another node has to settle, and whether it has not been told
	// yet.
	reported map[model.ClaimRef]bool
	news     map[model.ClaimRef]News
	seq      uint64
}

// News is what the owner of a claim is to hear of it.
type News struct {
	Seq      uint64 // 0 for none
	Beat     bool
	Progress *model.Payload
}

// Fresh is a claim that may be of another owner, and whether there is news of it.
type Fresh struct {
	Ref  model.ClaimRef
	News bool
}

// Slots is how many slots of the worker are lent, or taken by claims of other owners.
func (a *Abroad) Slots() int { return a.lent + len(a.held) }

// Lend notes that another node may use so many more slots, or fewer.
func (a *Abroad) Lend(n int) { a.lent += n }

// Lent is how many slots another node may use now.
func (a *Abroad) Lent() int { return a.lent }

// Take notes that claims which another node has made take slots.
func (a *Abroad) Take(claims []model.Claim, maker model.NodeID) {
	if a.makers == nil {
		a.makers = map[model.ClaimRef]model.NodeID{}
	}
	for i := range claims {
		a.hold(claims[i].Ref)
		a.makers[claims[i].Ref] = maker
	}
}

// Untake takes that back: the worker leaves.
func (a *Abroad) Untake(claims []model.Claim) {
	for i := range claims {
		a.Free(claims[i].Ref)
		delete(a.makers, claims[i].Ref)
	}
}

func (a *Abroad) hold(ref model.ClaimRef) {
	if a.held == nil {
		a.held = map[model.ClaimRef]bool{}
	}
	a.held[ref] = true
}

// Free ends what the worker has of a claim that it does not execute any more. It reports whether a
// slot is free by that, because the claim was one of another owner. News of it is not told any
// more: the owner would be polled for it again and again, and hear nothing.
func (a *Abroad) Free(ref model.ClaimRef) bool {
	delete(a.news, ref)
	if len(a.held) == 0 || !a.held[ref] {
		return false
	}
	delete(a.held, ref)
	return true
}

// Holds reports whether a claim takes a slot for another owner.
func (a *Abroad) Holds(ref model.ClaimRef) bool { return a.held[ref] }

// Unmake forgets who has handed over a claim that has ended, and returns it; zero for a claim of
// this node.
func (a *Abroad) Unmake(ref model.ClaimRef) model.NodeID {
	maker := a.makers[ref]
	delete(a.makers, ref)
	return maker
}

// Moved notes that the shards of claims which the worker executes are not ours any more, or have
// become so. It returns those that have.
func (a *Abroad) Moved(executes iter.Seq[model.ClaimRef], shard func(model.ClaimRef) bool, ours bool) (come []model.ClaimRef) {
	for ref := range executes {
		switch {
		case !shard(ref):
		case ours:
			delete(a.held, ref)
			come = append(come, ref)
		default:
			a.hold(ref)
		}
	}
	return come
}

// Note keeps what the owner of a claim, which is another node, is to hear.
func (a *Abroad) Note(ref model.ClaimRef, progress *model.Payload) {
	if a.news == nil {
		a.news = map[model.ClaimRef]News{}
	}
	a.seq++
	n := News{Seq: a.seq, Beat: true, Progress: a.news[ref].Progress}
	if progress != nil {
		p := *progress
		n.Progress = &p
	}
	a.news[ref] = n
}

// NewsOf is what the owner of a claim is to hear.
func (a *Abroad) NewsOf(ref model.ClaimRef) News { return a.news[ref] }

// Last is the number of the last news.
func (a *Abroad) Last() uint64 { return a.seq }

// Untold reports whether there is progress up to a number of news that no owner has heard. News of
// claims that the worker does not execute is forgotten.
func (a *Abroad) Untold(last uint64, executes func(model.ClaimRef) bool) (untold bool) {
	for ref, n := range a.news {
		if !executes(ref) {
			delete(a.news, ref)
		} else if n.Seq <= last && n.Progress != nil {
			untold = true
		}
	}
	return untold
}

// Report has the owner of a claim, which is another node, told how it ended.
func (a *Abroad) Report(ref model.ClaimRef) {
	if a.reported == nil {
		a.reported = map[model.ClaimRef]bool{}
	}
	a.reported[ref] = true
}

// Homeward takes back a report that another node was to settle, because the run has become ours. It
// reports false when there is none.
func (a *Abroad) Homeward(ref model.ClaimRef) bool {
	_, abroad := a.reported[ref]
	delete(a.reported, ref)
	return abroad
}

// Settled forgets a report.
func (a *Abroad) Settled(ref model.ClaimRef) { delete(a.reported, ref) }

// Told forgets news that the owner has heard, unless there is newer one: a report that was made
// while a heartbeat of the same claim was on its way has not been heard.
func (a *Abroad) Told(refs map[model.ClaimRef]uint64) {
	for ref, seq := range refs {
		switch {
		case seq == toldReport && a.reported[ref]:
			a.reported[ref] = false
		case seq != toldReport && a.news[ref].Seq == seq:
			delete(a.news, ref)
		}
	}
}

// toldReport stands for the report of a claim among the numbers of news that were told.
const toldReport = 0

// All are the claims that may be of another owner.
func (a *Abroad) All() []Fresh {
	all := make([]Fresh, 0, len(a.held)+len(a.news)+len(a.reported))
	for ref, fresh := range a.reported {
		all = append(all, Fresh{ref, fresh})
	}
	for ref := range a.held {
		all = append(all, Fresh{ref, a.news[ref].Seq != 0})
	}
	for ref := range a.news {
		if !a.held[ref] {
			all = append(all, Fresh{ref, true})
		}
	}
	return all
}

// List is what a node is told: everything of runs that are foreign, or from that node, with news
// and reports of what it owns, as far as there is room. It returns which those are.
func (a *Abroad) List(
	to model.NodeID, executes iter.Seq[model.ClaimRef], reports iter.Seq2[model.ClaimRef, *model.TaskReport], foreign, owned func(model.ClaimRef) bool, room *int,
) (holds []peer.Hold, sent map[model.ClaimRef]uint64) {
	sent = map[model.ClaimRef]uint64{}
	for ref := range executes {
		abroad := foreign(ref)
		if !abroad && a.makers[ref] != to {
			continue
		}
		h := peer.Hold{Ref: ref}
		if n := a.news[ref]; n.Seq != 0 && abroad && owned(ref) && (n.Progress == nil || *room > 0) {
			h.Beat, h.Progress = n.Beat, n.Progress
			if n.Progress != nil {
				*room -= n.Progress.Size()
			}
			sent[ref] = n.Seq
		}
		holds = append(holds, h)
	}

	for ref, r := range reports {
		abroad := foreign(ref)
		if !abroad && a.makers[ref] != to {
			continue
		}
		h := peer.Hold{Ref: ref}
		if _, ours := a.reported[ref]; ours && abroad && *room > 0 && owned(ref) {
			h.Report = r
			*room -= r.Output.Size()
			sent[ref] = toldReport
		}
		holds = append(holds, h)
	}

	return holds, sent
}
