package sim

import (
	"fmt"
	"strings"
)

// opKind is an operation that must succeed at least once in a run of many seeds.
type opKind int

// faultKind is a fault that must occur at least once in a run of many seeds.
type faultKind int

const (
	opStep opKind = iota
	opStepFailed
	opRetry
	opTimerStarted
	opTimerFired
	opWithdrawn
	opSignal
	opTaken
	opSettled
	opChild
	opChildClosed
	opBounced
	opSent
	opLabeled
	opCanceled
	opWatched
	opMessage
	opInbox
	opDeferred
	opParked
	opBlocked
	opQuarantined
	opContinued
	opReset
	opFree
	opAcquire
	opTakeoverLease // shards of a node whose lease had expired
	opTakeoverProof // shards of a node that was provably gone
	opDrained
	opRefence
	opVerify
	opLanded // an unknown commit had landed
	opResent // an unknown commit had not landed
	opCareful
	opStarted
	opAttached
	opRepeated // a request id came again and changed nothing
	opConflict
	opNotFound
	opRefusedFull
	opRemote // a request to another node through the store
	opAwaited
	opRan // a start whose sender received the end of the run
	opAwaitedRemote
	opRead
	opReadRefused
	opAhead
	opDiverged
	opReleased
	opEvicted
	opStale
	opWorkerLeft
	opSwept
	opWentOn // a quarantined address continues
	opTimerRestarted
	opAnswered // a message of a workflow
	opUpdate
	opUpdateAnswered
	opUpdateCarried
	opUpdateCut // its execution ended first
	opState
	opMarked
	opPaused
	opResumed
	opPausedOver // a run that was paused when it continued as new
	opAsked
	opAskedRemote
	opRecalled // a run that had ended
	opPinned
	opStranded   // was seen waiting for a worker of its version
	opUnstranded // and continued
	opUnpinned   // a pinned run continues with code that no longer pins it
	opForked
	opEdited // with an edited result
	opImported
	opImportedClosed
	opRetried
	opResetTalk // of a run with updates, state, labels or pauses
	opDeleted
	opExists
	opCalled // an update sent by a workflow
	opCallAnswered
	opCallRefused
	opCallCarried
	opCallCut
	opReadAgain
	opUpdateAgain // of a copied past: no caller waits for the answer
	opSubmitted
	opScheduled
	opReserved // claimed in the commit that scheduled it
	opClaimed
	opExecuted
	opBeat
	opReturned
	opTaskCompleted
	opTaskFailed // an attempt
	opTaskWithdrawn
	opTaskCanceled
	opToStart
	opToClose
	opTotal
	opSilence
	opLost
	opPoison // too rare to be demanded: three nodes have to go in a row
	opDead
	opStopped
	opReportMailed
	opReportLate
	opHandLeft
	opExecuteGone // a claim of a hand that has left
	opDenied      // a node answered that it does not have a claim; too rare to be demanded
	opDropped     // the claim was given back; even rarer
	opExpired     // a run left after its retention
	opExpiredOwn  // after a retention that it stated itself
	opDeadExpired
	opMany
	opRequeued
	opRequeuedStep
	opRequeuedEdited
	opRequeuedAgain
	opRequeuedBefore // another user was faster
	opLetterUndone
	opPurged
	opSet
	opSettingRace // another node has changed it in between
	opStateSaved  // of a breaker
	opStateLost   // another node was faster
	opAdopted
	opLimited
	opLimitMissing
	opBarred // by a breaker
	opHeldAnyhow
	opOpened
	opProbe
	opRecovered
	opRetryAfter
	opQueuePaused
	opPage   // of the ledger was written
	opOrphan // a claim that a node still counts
	// a claim of a dead node that another node counts from now on; too rare to be demanded
	opInherited
	opFound   // a node reported that it counts the tasks of dead nodes
	opCleaned // the share of a dead node is free
	opMailed
	opApplied
	opDeedSent
	opDeedAnswered
	opDeedFailed
	opOneWay
	opBrief
	opInterrupted // too rare to be demanded
	opViewed
	opPassed
	opEntityGone
	opEntityDeleted
	opTellerLeft
	opLockAsked
	opLockGranted
	opLocked
	opGranted
	opDeedLocked
	opLockWithdrawn
	opLockOutlived
	opUnlockedByForce
	opMisused
	opForgotten
	opAcknowledged // an answer is removed because its caller has it
	opSetAside
	opPutOffNewer
	opDoubted // a node continues with its own clock
	opCleared
	opAdvanced
	opWentBack
	opWokeUp  // after a suspend, without its shards
	opKnocked // at a node whose workers could take something
	opPolled
	opPollFailed // was not answered in time
	opLent       // slots of a worker
	opBorrowed   // a claim went to a worker of another node
	opBeatLent
	opReportLent
	opSettledLent
	opLentLate   // a claim arrived although no slot was lent for it
	opLoanBack   // a claim without a worker was given back; too rare to be demanded
	opNeighbours // all other addresses continued while rows of one were refused

	opClosed // + status
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
	"swept", "went on", "timer restarted", "answered", "update", "update answered", "update carried", "update cut off", "state set", "version marked",
	"paused", "resumed", "paused over runs", "asked", "asked remote", "recalled",
	"pinned", "stranded", "unstranded", "unpinned", "forked", "edited", "imported", "imported closed", "retried", "reset with talk", "deleted", "exists",
	"called", "call answered", "call refused", "call carried", "call cut off", "read again", "update again",
	"submitted", "scheduled", "claimed at once", "claimed", "executed", "beat", "returned", "task completed", "attempt failed", "task withdrawn", "task canceled",
	"timed out to start", "timed out to close", "timed out in total", "timed out silent", "worker lost", "", "dead letter", "told to stop", "report mailed",
	"report too late", "hand left", "claim of one that left", "", "",
	"run expired", "run expired by itself", "dead letter expired", "many at once", "requeued", "step requeued", "requeued edited", "requeued again",
	"requeued before", "requeue undone", "purged",
	"set", "setting race", "state saved", "state lost", "state adopted", "limited", "limit missing", "barred", "held anyhow", "breaker opened", "probe", "breaker recovered",
	"retry after", "queue paused", "page written", "claim goes on to count", "", "the dead looked for", "the dead cleaned up",
	"item stored", "deed applied", "deed sent by a step", "deed answered", "deed failed", "one way", "brief", "", "viewed", "passed on", "entity gone", "entity deleted", "teller left", "lock asked", "lock granted", "section locked", "entity granted", "deed in section", "lock withdrawn", "run ends in section", "unlocked by force", "request id misused", "request ids forgotten", "answers acknowledged", "set aside", "newer put off", "clock doubted", "clock cleared", "clock advanced", "clock went back", "woke up without its shards", "knocked", "polled", "poll not answered", "slots lent", "lent worker claims", "lent worker beats", "lent worker reports", "lent worker settled", "lent claim late", "", "neighbours ended",
	"", "", "closed completed", "closed failed", "closed canceled", "closed continued",
	"closed terminated",
}

const (
	faultCommitRetryable faultKind = iota
	faultCommitAway
	faultUnknownApplied
	faultUnknownLost
	faultLateLanded   // an orphan that landed after its caller had given up
	faultLateExcluded // an orphan that came after the fence had moved
	faultLateWaited   // an orphan that the fence had to wait for
	faultCommitSlow
	faultPoison
	faultLoad
	faultLoadCorrupt
	faultTornRead
	faultHintLost
	faultMailLost
	faultStoreAway
	faultRenewLost
	faultRenewFails
	faultAcquireLost
	faultAcquireLate
	faultAcquireFails
	faultFenceLost
	faultFenceFails
	faultRefenceLost
	faultRefenceFails
	faultVerifyFails
	faultRegisterLost
	faultPutLost
	faultPutFails
	faultRepliesFails
	faultCrash
	faultCrashCut
	faultPause
	faultPausePastLease
	faultLeave
	faultWorkerMoves
	faultBadWorker
	faultLateFenced // a node learned that it had lost its lease
	faultGaveUp     // a caller stopped waiting
	faultStaleTurn
	faultSlowReply
	faultOddView
	faultDeploy
	faultHandHangs
	faultReportTwice
	faultLetterOdd // late, or twice
	faultSettingFails
	faultSettingLost
	faultTellerHangs
	faultHandedBack // a teller has made only the first calls
	faultOperatedTwice
	faultLastingPoison
	faultFlood
	faultLargeTimeout // a commit took too long because of its size
	faultLargeRefused
	faultMisuse
	faultUpgrade
	faultNewEvent
	faultNewMessage
	faultDamaged
	faultSkipped
	faultJump
	faultJumpBack
	faultSuspend
	faultLie // a live node was declared dead
	faultCount
)

var faultNames = [faultCount]string{
	"commit retryable", "commit away", "unknown applied", "unknown lost", "orphan landed", "orphan excluded", "orphan waited for", "commit slow",
	"poison", "load fails", "load corrupt", "torn read", "hint lost", "mail lost", "store away", "renew lost", "renew fails", "acquire lost", "acquire late",
	"acquire fails", "fence lost", "fence fails", "refence lost", "refence fails", "verify fails", "register lost", "put lost", "put fails",
	"replies fails", "crash", "crash cuts calls", "pause", "pause past lease", "leave", "worker moves", "bad worker", "fenced",
	"gave up", "stale turn", "slow reply", "odd view", "deploy", "hand hangs", "reported twice", "letter odd", "setting fails", "setting lost",
	"teller hangs", "calls handed back", "operated twice", "lasting poison", "flood", "large commit times out", "large commit refused", "request id of another", "upgrade", "newer event", "newer message", "damaged request", "rows passed over", "clock jumps", "clock jumps back", "suspend", "false proof of death",
}

// Stats counts what happened.
type Stats struct {
	ops    [opCount]int
	faults [faultCount]int
	Seeds  int
	Events int
}

func (s *Sim) did(k opKind)     { s.stats.ops[k]++ }
func (s *Sim) hurt(k faultKind) { s.stats.faults[k]++ }

// Add sums statistics up.
func (s *Stats) Add(o *Stats) {
	for i := range o.ops {
		s.ops[i] += o.ops[i]
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

// Missing names the kinds of operations and faults that never occurred.
func (s *Stats) Missing() (names []string) {
	for i, n := range s.ops {
		if n == 0 && opNames[i] != "" {
			names = append(names, "op "+opNames[i])
		}
	}
	for i, n := range s.faults {
		if n == 0 && !notReady(faultKind(i)) {
			names = append(names, "fault "+faultNames[i])
		}
	}
	return names
}

// String lists all counts.
func (s *Stats) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds, %d events, %d faults\n", s.Seeds, s.Events, s.Faults())
	for i, n := range s.ops {
		if opNames[i] != "" {
			fmt.Fprintf(&b, "  %-20s %9d\n", opNames[i], n)
		}
	}
	for i, n := range s.faults {
		fmt.Fprintf(&b, "  ! %-18s %9d\n", faultNames[i], n)
	}
	return b.String()
}
