package loan

import (
	"iter"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
)

// Abroad records the work of a worker for runs of other nodes: which of its slots these runs use,
// and which news their owners have not received yet. The session of the worker knows which claims
// the worker executes and has reported, and passes them in. The zero value is a worker without
// claims of other nodes.
type Abroad struct {
	lent int                     // slots that another node may use now
	held map[model.ClaimRef]bool // claims that the board of this node does not know
	// makers are the nodes that have handed over the held or reported claims. A maker counts its
	// claims for limits as long as the polls of this node list them, even if another node owns the
	// runs by now.
	makers map[model.ClaimRef]model.NodeID
	// reported are claims whose report another node must settle. The value is true until that node
	// has received the report.
	reported map[model.ClaimRef]bool
	news     map[model.ClaimRef]News
	seq      uint64
}

// News is what the owner of a claim must learn about the claim: progress, or a sign of life.
type News struct {
	Seq      uint64 // 0 if there is no news
	Beat     bool
	Progress *model.Payload
}

// Fresh is a claim that may belong to another owner. It says whether there is news about the claim.
type Fresh struct {
	Ref  model.ClaimRef
	News bool
}

// Slots returns how many slots of the worker are lent, or taken by claims of other owners.
func (a *Abroad) Slots() int { return a.lent + len(a.held) }

// Lend changes the number of slots that another node may use by n.
func (a *Abroad) Lend(n int) { a.lent += n }

// LentSlots returns how many slots another node may use now.
func (a *Abroad) LentSlots() int { return a.lent }

// Take records that claims of another node take slots.
func (a *Abroad) Take(claims []model.Claim, maker model.NodeID) {
	if a.makers == nil {
		a.makers = map[model.ClaimRef]model.NodeID{}
	}
	for i := range claims {
		a.hold(claims[i].Ref)
		a.makers[claims[i].Ref] = maker
	}
}

// Untake undoes Take, because the worker leaves.
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

// Free drops a claim that the worker no longer executes. It reports whether that frees a slot,
// because the claim belonged to another owner. It also drops news about the claim. A poll lists
// only claims that the worker has. If the news stayed, this node would poll the owner again and
// again, and never deliver the news.
func (a *Abroad) Free(ref model.ClaimRef) bool {
	delete(a.news, ref)
	if len(a.held) == 0 || !a.held[ref] {
		return false
	}
	delete(a.held, ref)
	return true
}

// HasClaim reports whether a claim takes a slot for another owner.
func (a *Abroad) HasClaim(ref model.ClaimRef) bool { return a.held[ref] }

// Unmake forgets which node has handed over an ended claim, and returns that node. It returns zero
// for a claim of this node.
func (a *Abroad) Unmake(ref model.ClaimRef) model.NodeID {
	maker := a.makers[ref]
	delete(a.makers, ref)
	return maker
}

// MoveClaims notes that shards now belong to this node (ours) or to another node. It looks at the
// claims of these shards that the worker executes, and returns the claims that have come to this
// node.
func (a *Abroad) MoveClaims(executes iter.Seq[model.ClaimRef], shard func(model.ClaimRef) bool, ours bool) (come []model.ClaimRef) {
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

// Note keeps news for the node that owns the run of a claim.
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

// NewsOf returns the news about a claim.
func (a *Abroad) NewsOf(ref model.ClaimRef) News { return a.news[ref] }

// Last returns the number of the last news.
func (a *Abroad) Last() uint64 { return a.seq }

// Untold reports whether the owner of a claim has not received some progress yet. It looks only at
// news up to the given number. Heartbeats without progress do not count. It drops news about claims
// that the worker does not execute.
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

// Report queues the report of a claim for the node that owns its run.
func (a *Abroad) Report(ref model.ClaimRef) {
	if a.reported == nil {
		a.reported = map[model.ClaimRef]bool{}
	}
	a.reported[ref] = true
}

// TakeBackReport removes a report from the queue for another node, because this node now owns the
// run. It returns false if there is no report.
func (a *Abroad) TakeBackReport(ref model.ClaimRef) bool {
	_, abroad := a.reported[ref]
	delete(a.reported, ref)
	return abroad
}

// DropReport drops a report.
func (a *Abroad) DropReport(ref model.ClaimRef) { delete(a.reported, ref) }

// DropSentNews drops news that the owner has received. It keeps newer news. For example, if the
// worker reported a claim while a heartbeat of the claim was in flight, the report has not arrived
// yet.
func (a *Abroad) DropSentNews(refs map[model.ClaimRef]uint64) {
	for ref, seq := range refs {
		switch {
		case seq == toldReport && a.reported[ref]:
			a.reported[ref] = false
		case seq != toldReport && a.news[ref].Seq == seq:
			delete(a.news, ref)
		}
	}
}

// Among the numbers of news, toldReport stands for the report of a claim.
const toldReport = 0

// All returns the claims that may belong to another owner.
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

// Listing is the input of Abroad.List.
type Listing struct {
	To model.NodeID // the node that is polled
	// Executes, Lingers and Reports are what the session of the worker knows: the claims that the
	// worker executes, the lost claims whose code still runs, and its reports that are not settled.
	Executes iter.Seq[model.ClaimRef]
	Lingers  iter.Seq[model.ClaimRef]
	Reports  iter.Seq2[model.ClaimRef, *model.TaskReport]
	// Foreign reports whether another node owns the run of a claim, and Owned whether To does.
	Foreign, Owned func(model.ClaimRef) bool
	// Room is how many bytes of progress and outputs fit. List subtracts what it uses.
	Room *int
}

// List returns the claims that a poll lists for the polled node (l.To): all claims of foreign runs,
// and all claims that the polled node has made. That node keeps the permits of its claims as long
// as polls list them, also if they are lost and only their code still runs. For the runs that the
// polled node owns, List adds news and reports as long as there is room. sent says which news and
// reports are included.
func (a *Abroad) List(l Listing) (holds []peer.Hold, sent map[model.ClaimRef]uint64) {
	sent = map[model.ClaimRef]uint64{}
	for ref := range l.Executes {
		abroad := l.Foreign(ref)
		if !abroad && a.makers[ref] != l.To {
			continue
		}
		h := peer.Hold{Ref: ref}
		if n := a.news[ref]; n.Seq != 0 && abroad && l.Owned(ref) && (n.Progress == nil || *l.Room > 0) {
			h.Beat, h.Progress = n.Beat, n.Progress
			if n.Progress != nil {
				*l.Room -= n.Progress.Size()
			}
			sent[ref] = n.Seq
		}
		holds = append(holds, h)
	}

	if l.Lingers != nil {
		for ref := range l.Lingers {
			if a.makers[ref] == l.To {
				holds = append(holds, peer.Hold{Ref: ref})
			}
		}
	}

	for ref, r := range l.Reports {
		abroad := l.Foreign(ref)
		if !abroad && a.makers[ref] != l.To {
			continue
		}
		h := peer.Hold{Ref: ref}
		if _, ours := a.reported[ref]; ours && abroad && *l.Room > 0 && l.Owned(ref) {
			h.Report = r
			*l.Room -= r.Output.Size()
			sent[ref] = toldReport
		}
		holds = append(holds, h)
	}

	return holds, sent
}
