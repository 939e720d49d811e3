package lane

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// LoadKind says what to read.
type LoadKind uint8

// Kinds of reads.
const (
	// the run (Run, or the current one of Address); an open run with all events and timers
	LoadRun      LoadKind = iota + 1
	LoadReply             // the remembered answer to RequestID of Address
	LoadRunnable          // a page of runnable runs of Shards after After
	LoadTimers            // a page of timers of Shards after Mark, due until Until
	LoadMail              // messages for Shards, and inbox rows for Shards and Leaving
	LoadProgress          // the last progress of the task Task of Run
	// runs of Shards past their retention time, see store.LoadExpired: Limit, After, Before and
	// Until bound the walk
	LoadExpired
	LoadDeadTask // the dead task Task of Run
	LoadFate     // whether and how Claim has ended
	LoadWritten  // what Task of Run has written so far, and its states
	LoadEntity   // the entity Address with its mailbox
	LoadMailbox  // the mailbox of the entity Address
	// a page of the entities of Shards after Behind whose mailbox is not empty
	LoadMailboxes
)

// Load is a read that the lane asks for.
type Load struct {
	ID        uint64
	Kind      LoadKind
	Shard     model.ShardID
	Shards    []model.ShardID
	Leaving   []model.ShardID // LoadMail reads only the requests of these shards
	Address   model.Address
	Run       model.RunID
	RequestID string
	Task      string
	Claim     model.ClaimRef
	After     store.RunKey
	Behind    store.EntityKey
	Mark      store.TimerMark
	Until     model.Time
	Before    model.Time
	Limit     int
	Bytes     int // roughly the size of a page of LoadMail, for messages and for requests each

	entry    *entry
	message  *messageInput // the message that needs the read
	report   claimReport   // the report that needs the read, of LoadFate
	version  int32         // version of the entry when the read started
	tenure   int           // tenure of the lane when the read started
	begun    int           // tenure of the lane when it asked for the first page of runnable runs
	task     *handover
	all      bool  // LoadMail reads the mail of all shards
	catchUp  bool  // the lane reads timers of kinds that are behind the others, see window
	served   int32 // entry.remembered when the lane looked for a reply
	attempts int
	at       model.Time // the read must not start before this time
}

// LoadResult is the result of a Load.
type LoadResult struct {
	Execution *store.Execution
	Events    []model.Event
	Timers    []store.Timer
	Reply     *store.Reply
	Runnable  []store.RunHead
	Expired   store.Expired
	Messages  []store.MessageRow
	Inbox     []store.InboxRow
	MoreMail  bool // there may be more messages or requests
	Data      []store.TaskDatum
	DeadTask  *store.DeadRow
	Fate      core.Fate
	Entity    store.LoadedEntity
	Mailboxes []store.EntityKey
	Print     []byte // fingerprint of the row of an entity that a message removes
	Err       error
}

// loads are the reads in flight and the reads that wait for their turn.
type loads struct {
	last    uint64 // id of the last read
	flying  map[uint64]*Load
	waiting []*Load
	delayed []*Load // failed reads, which the lane repeats later
}

func newLoads() loads { return loads{flying: map[uint64]*Load{}} }

func (q *loads) idle() bool { return len(q.flying) == 0 && len(q.waiting) == 0 && len(q.delayed) == 0 }

// isCrowded reports whether so many reads wait that the lane should start no work that needs
// another read. The line of reads must stay short, because each new read waits behind all of them.
func (q *loads) isCrowded(most int) bool { return len(q.waiting) > most }

func (q *loads) add(ld *Load) { q.waiting = append(q.waiting, ld) }

// addFirst adds a read in front of all others.
func (q *loads) addFirst(ld *Load) { q.waiting = slices.Insert(q.waiting, 0, ld) }

// next takes the first read from the queue.
func (q *loads) next() *Load {
	ld := q.waiting[0]
	q.waiting[0] = nil
	if q.waiting = q.waiting[1:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	return ld
}

// send notes that a read is in flight, and the version of the entry at its start.
func (q *loads) send(ld *Load) *Load {
	q.last++
	ld.ID = q.last
	q.flying[ld.ID] = ld
	if ld.entry != nil {
		ld.version = ld.entry.version
	}
	return ld
}

// wake returns when the lane repeats the next failed read. It returns zero if there is none.
func (q *loads) wake() model.Time {
	var t model.Time
	for _, ld := range q.delayed {
		if t == 0 || ld.at < t {
			t = ld.at
		}
	}
	return t
}

// ripen moves failed reads whose pause is over back into the queue.
func (q *loads) ripen(now model.Time) {
	kept := q.delayed[:0]
	for _, ld := range q.delayed {
		if ld.at <= now {
			q.waiting = append(q.waiting, ld)
		} else {
			kept = append(kept, ld)
		}
	}
	q.delayed = kept
}

// backoff returns the pause before attempt n (from 1): 10 ms doubled up to 1 s.
func backoff(n int) time.Duration { return min(10*time.Millisecond<<min(n-1, 10), time.Second) }

// isSurvivable reports whether the lane continues when it cannot decode the rows of a read:
//
//   - A run or an entity is quarantined. But if a batch in flight has rows of the run or entity,
//     the lane repeats the read, because a quarantine would drop these rows.
//   - A caller that repeats a request learns that the answer is lost.
//   - An attempt starts without the progress of the attempt before it.
//   - A caller that asks for a dead task, or writes data of a task, learns that the dead task or
//     the data cannot be read.
//   - The lane refuses a report if it cannot look up the claim.
//   - The lane removes an entity even if its mailbox cannot be read.
//
// A page of many addresses never fails because of one row; see store.Whole.
func (ld *Load) isSurvivable() bool {
	switch ld.Kind {
	case LoadReply, LoadProgress, LoadDeadTask, LoadFate, LoadWritten, LoadMailbox:
		return true
	case LoadRun, LoadEntity:
		return !ld.entry.dirty()
	default:
		return false
	}
}
