package scenario

import (
	"fmt"
	"strings"
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
	OpPage   // a page of the ledger was written
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

var opNames = [opCount]string{
	"step", "step failed", "retry", "timer started", "timer fired", "withdrawn", "signal", "signal taken", "promise settled",
	"child started", "child closed", "bounced", "sent", "labeled", "canceled", "watched", "message", "inbox", "deferred", "parked", "blocked",
	"quarantined", "continued", "reset", "shard freed", "shard acquired", "takeover by lease", "takeover by proof", "drained", "refence", "verify",
	"unknown landed", "unknown resent", "careful", "started", "attached", "request repeated", "conflict", "not found", "refused full",
	"remote", "awaited", "ran", "awaited remote", "read", "read refused", "ran ahead", "diverged", "released", "evicted", "stale turn", "worker left",
	"swept", "went on", "timer restarted", "answered", "update", "update answered", "update carried", "update cut off", "state set", "version marked", "noted",
	"paused", "resumed", "paused over runs", "asked", "asked remote", "asked over a link", "link to another owner", "recalled",
	"pinned", "stranded", "unstranded", "unpinned", "forked", "edited", "imported", "imported closed", "retried", "reset with talk", "deleted", "exists",
	"called", "call answered", "call refused", "call carried", "call cut off", "read again", "update again",
	"submitted", "scheduled", "claimed at once", "claimed", "executed", "beat", "returned", "task completed", "attempt failed", "task withdrawn", "task canceled",
	"timed out to start", "timed out to close", "timed out in total", "timed out silent", "worker lost", "", "dead task", "told to stop", "report mailed",
	"report too late", "hand left", "claim of one that left", "", "",
	"run expired", "run expired by itself", "dead task expired", "many at once", "requeued", "step requeued", "requeued edited", "requeued again",
	"requeued before", "requeue undone", "purged",
	"set", "setting race", "state saved", "state lost", "state adopted", "limited", "limit missing", "barred", "held anyhow", "breaker opened", "probe", "breaker recovered",
	"retry after", "queue paused", "page written", "claim goes on to count", "permits freed early", "", "the dead looked for", "the dead cleaned up",
	"item stored", "deed applied", "deed sent by a step", "deed answered", "deed failed", "one way", "brief", "", "viewed", "passed on", "passed inside a batch", "passed inside a refused batch", "ran ahead", "entity gone", "entity deleted", "entity expired", "teller left", "no slot", "lock asked", "lock granted", "section locked", "entity granted", "deed in section", "lock withdrawn", "run ends in section", "unlocked by force", "request id misused", "request ids forgotten", "answers acknowledged", "set aside", "newer put off", "clock doubted", "clock cleared", "clock advanced", "clock went back", "woke up without its shards", "knocked", "polled", "poll not answered", "slots lent", "lent worker claims", "lent worker beats", "lent worker reports", "lent worker settled", "lent claim late", "", "start postponed", "", "execution timed out", "signal dropped", "", "run repeated", "neighbours ended", "worker rejoined", "body kept", "node emptied", "node undrained",
	"read together", "id of the current era", "late copy of a request", "killed by a call", "call marked", "call set aside", "teller killed", "call set aside for tellers", "receipt", "shard of a group acquired", "group without a node",
	"damaged message set aside", "unread dead task refused", "unread dead task removed", "unread answer", "setting restored",
	"", "", "closed completed", "closed failed", "closed canceled", "closed continued",
	"closed terminated",
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
