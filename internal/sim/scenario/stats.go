package scenario

import (
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

// OpKind is a kind of operation that a simulation counts. A test of many seeds demands that each
// kind occurs at least once. It does not demand the kinds that have no name in opNames.
type OpKind int

// FaultKind is a kind of fault. A test of many seeds demands that each kind occurs at least once.
type FaultKind int

// The operations. opNames has their names.
const (
	OpStep OpKind = iota
	OpStepFailed
	OpRetry
	OpTimerStarted
	OpTimerFired
	OpWithdrawn
	OpSignal
	OpTaken
	OpSettled
	OpChild
	OpChildClosed
	OpBounced
	OpSent
	OpLabeled
	OpCanceled
	OpWatched
	OpMessage
	OpInbox
	OpDeferred
	OpParked
	OpBlocked
	OpQuarantined
	OpContinued
	OpReset
	OpFree
	OpAcquire
	OpTakeoverLease // a node took shards of a node whose lease had expired
	OpTakeoverProof // a node took shards of a node that was provably gone
	OpDrained
	OpRefence
	OpVerify
	OpLanded // a node learned that a commit of unknown outcome is in the store
	OpResent // a node learned that a commit of unknown outcome is not in the store
	OpCareful
	OpStarted
	OpAttached
	OpRepeated // a request id came again and changed nothing
	OpConflict
	OpNotFound
	OpRefusedFull
	OpRemote // a request to another node through the store
	OpAwaited
	OpRan // a start whose sender received the end of the run
	OpAwaitedRemote
	OpRead
	OpReadRefused
	OpAhead
	OpDiverged
	OpPreview
	OpSpoiled
	OpReleased
	OpEvicted
	OpStale
	OpWorkerLeft
	OpSwept
	OpWentOn // a quarantined address continues
	OpTimerRestarted
	OpAnswered // a workflow got the answer to a message
	OpUpdate
	OpUpdateAnswered
	OpUpdateCarried
	OpUpdateCut // an execution ended before it had answered an update
	OpState
	OpMarked
	OpNoted
	OpPaused
	OpResumed
	OpPausedOver // a run that was paused when it continued as new
	OpAsked
	OpAskedRemote
	OpLinked   // a request that another node answered over a connection
	OpMoved    // a request over a connection to a node that was not the owner
	OpRecalled // a worker answered a query about a run that had ended
	OpPinned
	OpStranded   // a run was seen waiting for a worker of its version
	OpUnstranded // such a run continued
	OpUnpinned   // a pinned run continues with code that no longer pins it
	OpForked
	OpEdited // a run began with a past that has an edited result
	OpImported
	OpImportedClosed
	OpRetried
	OpResetTalk // a reset of a run with updates, state, labels or pauses
	OpDeleted
	OpExists
	OpCalled // a workflow sent an update, and the receiver accepted it
	OpCallAnswered
	OpCallRefused
	OpCallCarried
	OpCallCut
	OpReadAgain
	OpUpdateAgain // a run answered an update of a copied past; no caller waits for that answer
	OpSubmitted
	OpScheduled
	OpReserved // a worker claimed a task in the commit that scheduled the task
	OpClaimed
	OpExecuted
	OpBeat
	OpReturned
	OpTaskCompleted
	OpTaskFailed // a worker reported that an attempt of a task had failed
	OpTaskWithdrawn
	OpTaskCanceled
	OpToStart
	OpToClose
	OpTotal
	OpSilence
	OpLost
	OpPoison // three workers in a row were lost with a task; too rare to be demanded
	OpDead
	OpStopped
	OpReportMailed
	OpReportLate
	OpHandLeft
	OpExecuteGone // a lane handed a claim to a task worker that had left
	OpDenied      // a node answered that it does not have a claim; too rare to be demanded
	OpDropped     // the claim was given back after such an answer; even rarer
	OpExpired     // a run was removed after its retention time
	OpExpiredOwn  // a run was removed after a retention time of its own
	OpDeadExpired
	OpMany
	OpRequeued
	OpRequeuedStep
	OpRequeuedEdited
	OpRequeuedAgain
	OpRequeuedBefore // a user learned that another user had requeued the task first
	OpRequeueUndone
	OpPurged
	OpSet
	OpSettingRace // a user could not write a setting that had changed since the user had read it
	OpStateSaved  // the state of a breaker was written
	OpStateLost   // a node could not write a setting, because another node had written it first
	OpAdopted
	OpLimited
	OpLimitMissing
	OpBarred // a breaker held a task back
	OpHeldAnyhow
	OpOpened
	OpProbe
	OpRecovered
	OpRetryAfter
	OpQueuePaused
	OpPage // a page of the ledger was written
	// OpLingered: the code of a lost claim ran on.
	OpLingered
	OpOrphan // the board has given up a claim, and the claim keeps its permits
	// OpFreedEarly: the worker of such a claim was done, and the permits became free before the end
	// of the claim was stored.
	OpFreedEarly
	// OpInherited: a node counts a claim of a dead node from now on; too rare to be demanded.
	OpInherited
	OpFound   // a node stored that it has counted the claims of dead nodes in its shards
	OpCleaned // the leased permits of a dead node became free
	OpMailed
	OpApplied
	OpDeedSent
	OpDeedAnswered
	OpDeedFailed
	OpOneWay
	OpBrief
	OpInterrupted // a caller learned that a call may or may not have run; too rare to be demanded
	OpViewed
	OpPassed
	OpPassedInside    // a message took effect in the batch that sent it
	OpPassedInRefused // such a batch was refused
	OpRanAhead        // a call began before the batch that sends it was durable
	OpEntityGone
	OpEntityDeleted
	OpEntityExpired
	OpTellerLeft
	OpNoSlot // a run or a call found all workers busy
	OpLockAsked
	OpLockGranted
	OpLocked
	OpGranted
	OpDeedLocked
	OpLockWithdrawn
	OpLockOutlived
	OpUnlockedByForce
	OpMisused
	OpForgotten
	OpAcknowledged // the owner removed an answer because the caller has the answer
	OpSetAside
	OpPutOffNewer
	OpDoubted // a node continues with its own clock
	OpCleared
	OpAdvanced
	OpWentBack
	OpWokeUp  // a node woke from a suspend, and another node owned one of its shards
	OpKnocked // an owner told another node that tasks of the owner wait for workers
	OpPolled
	OpPollFailed // a poll was not answered in time
	OpLent       // a node lent slots of a worker
	OpBorrowed   // a claim went to a worker of another node
	OpBeatLent
	OpReportLent
	OpSettledLent
	OpLentLate      // a claim arrived although no slot was lent for the claim
	OpLoanBack      // a node gave back a claim that no worker executes; too rare to be demanded
	OpDelayed       // a start was postponed
	OpCanceledEarly // a run was canceled before its start time; too rare to be demanded
	OpTimedOut      // an execution timed out
	OpSignalDropped // an operator dropped a signal
	OpSignalSkipped // an operator skipped a signal; too rare to be demanded
	OpRunRepeated   // a failed run was followed by another attempt
	OpNeighbours    // all other executions ended while the store refused rows of an address
	OpRejoined      // a worker outlived its server, and joined another server with its runs
	OpBodyKept      // a worker continued a body that had outlived its server
	OpEmptied       // a node that an operator had drained had given up its last shard
	OpUndrained     // an operator let a node take shards again
	OpTogether      // several runs were read in one call
	OpDrawn         // a request id named the current era of the lane that got the request
	OpLateCopy      // such a request was sent again when the node of that era got the shard back
	OpKilled        // a call killed its process
	OpAccused       // an owner marked a call before it executed the call
	OpConvicted     // a call was set aside because owners had died while they executed it
	OpTellerDied    // a call killed the teller that executed it, but not the process
	OpCondemned     // a call was set aside because tellers had died while they had it
	OpReceipt       // a server learned that a client has the answer to a request with a drawn id
	OpGroupShard    // a node acquired a shard of a group other than the default one
	OpGroupAlone    // no live node took the shards of a group
	OpMessageAside  // a damaged message between shards was set aside
	OpDeadUnread    // an order for a dead task that cannot be read was refused
	OpDeadRemoved   // an operator removed a dead task that cannot be read
	OpReplyUnread   // a user learned that the answer to a request cannot be read
	OpRestored      // an operator restored a setting

	OpClosed // a run closed; the status of the run is added to this number
	_
	_
	_
	_
	_
	_
	opCount
)

// opNames names the operations. A kind without a name is too rare to be demanded.
var opNames = [opCount]string{
	OpStep: "step", OpStepFailed: "step failed", OpRetry: "retry", OpTimerStarted: "timer started", OpTimerFired: "timer fired",
	OpWithdrawn: "withdrawn", OpSignal: "signal", OpTaken: "signal taken", OpSettled: "promise settled", OpChild: "child started",
	OpChildClosed: "child closed", OpBounced: "bounced", OpSent: "sent", OpLabeled: "labeled", OpCanceled: "canceled",
	OpWatched: "watched", OpMessage: "message", OpInbox: "inbox", OpDeferred: "deferred", OpParked: "parked", OpBlocked: "blocked",
	OpQuarantined: "quarantined", OpContinued: "continued", OpReset: "reset", OpFree: "shard freed", OpAcquire: "shard acquired",
	OpTakeoverLease: "takeover by lease", OpTakeoverProof: "takeover by proof", OpDrained: "drained", OpRefence: "refence",
	OpVerify: "verify", OpLanded: "unknown landed", OpResent: "unknown resent", OpCareful: "careful", OpStarted: "started",
	OpAttached: "attached", OpRepeated: "request repeated", OpConflict: "conflict", OpNotFound: "not found",
	OpRefusedFull: "refused full", OpRemote: "remote", OpAwaited: "awaited", OpRan: "ran", OpAwaitedRemote: "awaited remote",
	OpRead: "read", OpReadRefused: "read refused", OpAhead: "ran ahead", OpDiverged: "diverged", OpPreview: "preview", OpSpoiled: "preview spoiled", OpReleased: "released",
	OpEvicted: "evicted", OpStale: "stale turn", OpWorkerLeft: "worker left", OpSwept: "swept", OpWentOn: "went on",
	OpTimerRestarted: "timer restarted", OpAnswered: "answered", OpUpdate: "update", OpUpdateAnswered: "update answered",
	OpUpdateCarried: "update carried", OpUpdateCut: "update cut off", OpState: "state set", OpMarked: "version marked",
	OpNoted: "noted", OpPaused: "paused", OpResumed: "resumed", OpPausedOver: "paused over runs", OpAsked: "asked",
	OpAskedRemote: "asked remote", OpLinked: "asked over a link", OpMoved: "link to another owner", OpRecalled: "recalled",
	OpPinned: "pinned", OpStranded: "stranded", OpUnstranded: "unstranded", OpUnpinned: "unpinned", OpForked: "forked",
	OpEdited: "edited", OpImported: "imported", OpImportedClosed: "imported closed", OpRetried: "retried",
	OpResetTalk: "reset with talk", OpDeleted: "deleted", OpExists: "exists", OpCalled: "called", OpCallAnswered: "call answered",
	OpCallRefused: "call refused", OpCallCarried: "call carried", OpCallCut: "call cut off", OpReadAgain: "read again",
	OpUpdateAgain: "update again", OpSubmitted: "submitted", OpScheduled: "scheduled", OpReserved: "claimed at once",
	OpClaimed: "claimed", OpExecuted: "executed", OpBeat: "beat", OpReturned: "returned", OpTaskCompleted: "task completed",
	OpTaskFailed: "attempt failed", OpTaskWithdrawn: "task withdrawn", OpTaskCanceled: "task canceled",
	OpToStart: "timed out to start", OpToClose: "timed out to close", OpTotal: "timed out in total", OpSilence: "timed out silent",
	OpLost: "worker lost", OpDead: "dead task", OpStopped: "told to stop", OpReportMailed: "report mailed",
	OpReportLate: "report too late", OpHandLeft: "hand left", OpExecuteGone: "claim of one that left", OpExpired: "run expired",
	OpExpiredOwn: "run expired by itself", OpDeadExpired: "dead task expired", OpMany: "many at once", OpRequeued: "requeued",
	OpRequeuedStep: "step requeued", OpRequeuedEdited: "requeued edited", OpRequeuedAgain: "requeued again",
	OpRequeuedBefore: "requeued before", OpRequeueUndone: "requeue undone", OpPurged: "purged", OpSet: "set",
	OpSettingRace: "setting race", OpStateSaved: "state saved", OpStateLost: "state lost", OpAdopted: "state adopted",
	OpLimited: "limited", OpLimitMissing: "limit missing", OpBarred: "barred", OpHeldAnyhow: "held anyhow",
	OpOpened: "breaker opened", OpProbe: "probe", OpRecovered: "breaker recovered", OpRetryAfter: "retry after",
	OpQueuePaused: "queue paused", OpPage: "page written", OpOrphan: "claim goes on to count",
	OpLingered: "code outlived its claim", OpFreedEarly: "permits freed early",
	OpFound: "the dead looked for", OpCleaned: "the dead cleaned up", OpMailed: "item stored", OpApplied: "deed applied",
	OpDeedSent: "deed sent by a step", OpDeedAnswered: "deed answered", OpDeedFailed: "deed failed", OpOneWay: "one way",
	OpBrief: "brief", OpViewed: "viewed", OpPassed: "passed on", OpPassedInside: "passed inside a batch",
	OpPassedInRefused: "passed inside a refused batch", OpRanAhead: "call ran ahead", OpEntityGone: "entity gone",
	OpEntityDeleted: "entity deleted", OpEntityExpired: "entity expired", OpTellerLeft: "teller left", OpNoSlot: "no slot",
	OpLockAsked: "lock asked", OpLockGranted: "lock granted", OpLocked: "section locked", OpGranted: "entity granted",
	OpDeedLocked: "deed in section", OpLockWithdrawn: "lock withdrawn", OpLockOutlived: "run ends in section",
	OpUnlockedByForce: "unlocked by force", OpMisused: "request id misused", OpForgotten: "request ids forgotten",
	OpAcknowledged: "answers acknowledged", OpSetAside: "set aside", OpPutOffNewer: "newer put off", OpDoubted: "clock doubted",
	OpCleared: "clock cleared", OpAdvanced: "clock advanced", OpWentBack: "clock went back", OpWokeUp: "woke up without its shards",
	OpKnocked: "knocked", OpPolled: "polled", OpPollFailed: "poll not answered", OpLent: "slots lent",
	OpBorrowed: "lent worker claims", OpBeatLent: "lent worker beats", OpReportLent: "lent worker reports",
	OpSettledLent: "lent worker settled", OpLentLate: "lent claim late", OpDelayed: "start postponed",
	OpTimedOut: "execution timed out", OpSignalDropped: "signal dropped", OpRunRepeated: "run repeated",
	OpNeighbours: "neighbours ended", OpRejoined: "worker rejoined", OpBodyKept: "body kept", OpEmptied: "node emptied",
	OpUndrained: "node undrained", OpTogether: "read together", OpDrawn: "id of the current era",
	OpLateCopy: "late copy of a request", OpKilled: "killed by a call", OpAccused: "call marked", OpConvicted: "call set aside",
	OpTellerDied: "teller killed", OpCondemned: "call set aside for tellers",
	OpReceipt: "receipt", OpGroupShard: "shard of a group acquired", OpGroupAlone: "group without a node",
	OpMessageAside: "damaged message set aside", OpDeadUnread: "unread dead task refused", OpDeadRemoved: "unread dead task removed",
	OpReplyUnread: "unread answer", OpRestored: "setting restored", OpClosed + OpKind(model.Completed): "closed completed",
	OpClosed + OpKind(model.Failed): "closed failed", OpClosed + OpKind(model.Canceled): "closed canceled",
	OpClosed + OpKind(model.Continued): "closed continued", OpClosed + OpKind(model.Terminated): "closed terminated",
}

// The faults. faultNames has their names.
const (
	FaultCommitRetryable FaultKind = iota
	FaultCommitAway
	FaultUnknownApplied
	FaultUnknownLost
	FaultLateLanded   // a commit landed after its caller had given up
	FaultLateExcluded // such a commit came after the fence had moved
	FaultLateWaited   // the fence had to wait for such a commit
	FaultCommitSlow
	FaultPoison
	FaultLoad
	FaultLoadCorrupt
	FaultTornRead
	FaultHintLost
	FaultMailLost
	FaultStoreAway
	FaultRenewLost
	FaultRenewFails
	FaultAcquireLost
	FaultAcquireLate
	FaultAcquireFails
	FaultFenceLost
	FaultFenceFails
	FaultRefenceLost
	FaultRefenceFails
	FaultVerifyFails
	FaultRegisterLost
	FaultPutLost
	FaultPutFails
	FaultRepliesFails
	FaultCrash
	FaultCrashCut
	FaultPause
	FaultPausePastLease
	FaultLeave
	FaultWorkerMoves
	FaultBadWorker
	FaultLateFenced // an incarnation ended with an error, such as the loss of its lease
	FaultGaveUp     // a caller stopped waiting
	FaultStaleTurn
	FaultSlowReply
	FaultOddView
	FaultDeploy
	FaultHandHangs
	FaultReportTwice
	FaultMessageOdd // a message arrived late, or twice
	FaultSettingFails
	FaultSettingLost
	FaultTellerHangs
	FaultHandedBack // an entity worker has made only the first calls of a hand-over
	FaultOperatedTwice
	FaultLastingPoison
	FaultFlood
	FaultLargeTimeout // a commit took too long because of its size
	FaultLargeRefused
	FaultMisuse
	FaultUpgrade
	FaultNewEvent
	FaultNewMessage
	FaultDamaged
	FaultSkipped
	FaultJump
	FaultJumpBack
	FaultSuspend
	FaultLinkLost // a connection between nodes broke with a request on it
	FaultLinkLate // a request took effect after its connection had broken
	FaultLie      // a live node was declared dead
	FaultDrain    // an operator drained a node
	FaultBadMessage
	FaultBadDead
	FaultBadReply
	FaultBadSetting
	faultCount
)

var faultNames = [faultCount]string{
	"commit retryable", "commit away", "unknown applied", "unknown lost", "orphan landed", "orphan excluded", "orphan waited for", "commit slow",
	"poison", "load fails", "load corrupt", "torn read", "hint lost", "mail lost", "store away", "renew lost", "renew fails", "acquire lost", "acquire late",
	"acquire fails", "fence lost", "fence fails", "refence lost", "refence fails", "verify fails", "register lost", "put lost", "put fails",
	"replies fails", "crash", "crash cuts calls", "pause", "pause past lease", "leave", "worker moves", "bad worker", "fenced",
	"gave up", "stale turn", "slow reply", "odd view", "deploy", "hand hangs", "reported twice", "letter odd", "setting fails", "setting lost",
	"teller hangs", "calls handed back", "operated twice", "lasting poison", "flood", "large commit times out", "large commit refused", "request id of another", "upgrade", "newer event", "newer message", "damaged request", "rows passed over", "clock jumps", "clock jumps back", "suspend", "link lost", "link late", "false proof of death", "node drained", "damaged message", "damaged dead task", "damaged answer", "damaged setting",
}

// Stats counts what happened.
type Stats struct {
	Ops    [opCount]int
	faults [faultCount]int
	Seeds  int
	Events int
}

// Did counts an operation.
func (s *Scenario) Did(k OpKind) { s.Stats.Ops[k]++ }

// Hurt counts a fault.
func (s *Scenario) Hurt(k FaultKind) { s.Stats.faults[k]++ }

// Add adds the counts of o to s.
func (s *Stats) Add(o *Stats) {
	for i := range o.Ops {
		s.Ops[i] += o.Ops[i]
	}
	for i := range o.faults {
		s.faults[i] += o.faults[i]
	}
	s.Seeds += o.Seeds
	s.Events += o.Events
}

// Faults returns the number of injected faults.
func (s *Stats) Faults() (n int) {
	for _, c := range s.faults {
		n += c
	}
	return n
}

// MissingNames names the kinds of operations and faults that never occurred. It ignores operations
// without a name.
func (s *Stats) MissingNames() (names []string) {
	for i, n := range s.Ops {
		if n == 0 && opNames[i] != "" {
			names = append(names, "op "+opNames[i])
		}
	}
	for i, n := range s.faults {
		if n == 0 {
			names = append(names, "fault "+faultNames[i])
		}
	}
	return names
}

// String lists all counts.
func (s *Stats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds, %d events, %d faults\n", s.Seeds, s.Events, s.Faults())
	for i, n := range s.Ops {
		if opNames[i] != "" {
			fmt.Fprintf(&b, "  %-20s %9d\n", opNames[i], n)
		}
	}
	for i, n := range s.faults {
		fmt.Fprintf(&b, "  ! %-18s %9d\n", faultNames[i], n)
	}
	return b.String()
}
