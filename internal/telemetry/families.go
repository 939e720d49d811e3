package telemetry

// Kind says how to read the values of a family.
type Kind uint8

// Kinds of families.
const (
	Counter   Kind = iota + 1 // only grows, from zero at the start of the process
	Gauge                     // a current state, read when the metrics are collected
	Histogram                 // numbers of values up to each bound, and the sum of all values
)

// String returns the word that Prometheus uses.
func (k Kind) String() string {
	switch k {
	case Counter:
		return "counter"
	case Gauge:
		return "gauge"
	case Histogram:
		return "histogram"
	}
	return "unknown"
}

// Family is a metric with all its labels.
type Family struct {
	Name, Help string
	Kind       Kind
	Labels     []string
	Bounds     []float64 // the bounds of a histogram, without infinity
}

// ID names a family.
type ID int

// Families. A metric that is counted at a commit is counted once, by the node that made the commit,
// even if a process crashes before or after the commit.
const (
	RunsStarted ID = iota
	RunsClosed
	RunSeconds
	RunsBlocked
	RunsLarge
	RunsLoaded
	RunsStranded
	RunsQuarantined
	SlotWaiters
	RunsRemoved
	Turns

	ActivityAttempts
	ActivitySeconds
	ActivitySlots
	ActivitySlotsBusy
	ActivitiesWaiting

	TasksSubmitted
	TasksClaimed
	TaskPickup
	TaskAttempts
	TaskSeconds
	TaskRetries
	TaskFailures
	TaskTimeouts
	TasksDead
	DeadRequeued
	DeadRemoved
	Tasks
	TaskOldest
	QueuePaused
	QueueWorkers
	QueueSlots

	PoolSlots
	PoolBusy
	PoolWaiting
	PoolLost
	PoolClosed

	BreakerState
	BreakerTransitions
	LimitHolders
	LimitWaiters
	LimitPermits
	LimitRefusals

	ScheduleTicks
	TimersFired
	TimerLateness
	Messages

	EntityCalls
	EntityCallSeconds
	EntityHandOver
	EntityHandOverCalls
	EntityCallsWaiting
	EntitiesLoaded
	LockWait
	LockHeld
	LocksHeld
	LockWaiters

	Commits
	CommitSeconds
	CommitRows
	CommitInputs
	Refences
	Reads
	SetAside
	Renewals
	ClockJumps
	ClockAhead
	LeaseLeft
	ShardsOwned
	LaneBytes
	LaneInbox
	Nodes
	StoreLog

	DoorRequests
	DoorSeconds
	DoorOpen
	DoorRefusals

	ServerConnected
	StreamsBroken

	numFamilies
)

// Labels.
const (
	labelWorkflow  = "workflow"
	labelActivity  = "activity"
	labelQueue     = "queue"
	labelBreaker   = "breaker"
	labelLimit     = "limit"
	labelSchedule  = "schedule"
	labelEntity    = "entity"
	labelOperation = "operation"
	labelTenant    = "tenant"

	labelStatus  = "status"
	labelReason  = "reason"
	labelOutcome = "outcome"
	labelKind    = "kind"
	labelTimeout = "timeout"
	labelState   = "state"
	labelDoor    = "door"
	labelMethod  = "method"
	labelCode    = "code"
)

// named has the labels whose values programs and people choose. The other labels have words from
// fixed lists.
var named = map[string]bool{labelWorkflow: true, labelActivity: true, labelQueue: true, labelBreaker: true, labelLimit: true, labelSchedule: true, labelEntity: true, labelOperation: true, labelTenant: true, labelMethod: true}

// tenantFamilies are the families that can count each tenant on its own. These are the metrics that
// the owners of runs and entities count, and the states of queues, limits and breakers.
var tenantFamilies = map[ID]bool{
	RunsStarted: true, RunsClosed: true, RunSeconds: true, RunsBlocked: true, RunsLarge: true, ActivityAttempts: true,
	TasksSubmitted: true, TasksClaimed: true, TaskPickup: true, TaskAttempts: true, TaskSeconds: true, TaskRetries: true, TaskFailures: true, TaskTimeouts: true,
	TasksDead: true, DeadRequeued: true, Tasks: true, TaskOldest: true, QueuePaused: true, QueueWorkers: true, QueueSlots: true,
	BreakerState: true, BreakerTransitions: true, LimitHolders: true, LimitWaiters: true, LimitPermits: true,
	EntityCalls: true, EntityCallSeconds: true, EntityHandOver: true, EntityHandOverCalls: true, LockWait: true, LockHeld: true,
}

// HasTenant reports whether a family has the tenant as a label when the meter counts by tenant.
func HasTenant(id ID) bool { return tenantFamilies[id] }

// Other replaces the names in labels when a family has too many combinations of labels.
const Other = "_other"

// Bounds of histograms.
var (
	// quick is for commits.
	quick = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	// usual is for the time until a worker starts something, and for the time that the worker
	// takes.
	usual = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	// long is for workflows.
	long = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 86400}
	// many is for counts.
	many = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}
)

// families is the table. docs/observability.md has the same table, and a test compares them.
var families = [numFamilies]Family{
	RunsStarted: {"perdure_workflow_runs_started_total", "Workflow runs that started.", Counter, []string{labelWorkflow}, nil},
	RunsClosed: {
		"perdure_workflow_runs_closed_total", "Workflow runs that ended, by status: completed, failed, canceled, continued, terminated.", Counter,
		[]string{labelWorkflow, labelStatus},
		nil,
	},
	RunSeconds: {"perdure_workflow_run_seconds", "Time from the start of a run to its end.", Histogram, []string{labelWorkflow}, long},
	RunsLarge: {
		"perdure_workflow_runs_large_total", "Runs whose history has reached four fifths of its limit in bytes.", Counter,
		[]string{labelWorkflow},
		nil,
	},
	RunsBlocked: {
		"perdure_workflow_runs_blocked_total", "Runs that stopped until a person changes something, by reason: replay_mismatch, wrong_type, quarantined, corrupt, newer_version, history_limit, no_worker.", Counter,
		[]string{labelWorkflow, labelReason},
		nil,
	},
	RunsLoaded: {"perdure_workflow_runs_loaded", "Runs whose code is in the memory of this process.", Gauge, nil, nil},
	RunsStranded: {
		"perdure_workflow_runs_stranded", "Open executions and tasks in the shards of this node that continue only after a person changes something, by reason, as perdure workflow stranded lists them.",
		Gauge,
		[]string{labelReason},
		nil,
	},
	RunsQuarantined: {"perdure_workflow_runs_quarantined", "Addresses that this node has quarantined because the store refuses their rows or cannot read them.", Gauge, nil, nil},
	SlotWaiters:     {"perdure_slot_waiters", "Executions (kind workflow) and keys of entities and services (kind entity) that wait because every worker with their code is busy.", Gauge, []string{labelKind}, nil},
	RunsRemoved:     {"perdure_runs_removed_total", "Closed runs, including tasks, that were removed by retention or by hand.", Counter, nil, nil},
	Turns:           {"perdure_workflow_turns_total", "Turns of workflow code that were committed.", Counter, nil, nil},

	ActivityAttempts: {
		"perdure_activity_attempts_total", "Attempts of activities that ran in the process of their workflow, by outcome: completed, retried, failed.", Counter,
		[]string{labelActivity, labelOutcome},
		nil,
	},
	ActivitySeconds:   {"perdure_activity_attempt_seconds", "Time that such an attempt took.", Histogram, []string{labelActivity}, usual},
	ActivitySlots:     {"perdure_activity_slots", "How many attempts of such activities may run at the same time in this process.", Gauge, nil, nil},
	ActivitySlotsBusy: {"perdure_activity_slots_busy", "How many of these attempts run.", Gauge, nil, nil},
	ActivitiesWaiting: {"perdure_activities_waiting", "How many of these attempts wait for a slot.", Gauge, nil, nil},

	TasksSubmitted: {"perdure_tasks_submitted_total", "Tasks that were created, on their own or as steps of workflows.", Counter, []string{labelActivity, labelQueue}, nil},
	TasksClaimed:   {"perdure_task_claims_total", "Attempts of tasks that a worker claimed.", Counter, []string{labelActivity, labelQueue}, nil},
	TaskPickup:     {"perdure_task_pickup_seconds", "Time from when an attempt may start to when a worker has it.", Histogram, []string{labelActivity, labelQueue}, usual},
	TaskAttempts: {
		"perdure_task_attempts_total", "Attempts of tasks that ended, by outcome: completed, failed, timed_out, lost, returned, canceled.", Counter,
		[]string{labelActivity, labelQueue, labelOutcome},
		nil,
	},
	TaskSeconds: {"perdure_task_attempt_seconds", "Time from the claim of an attempt to its end, as the owner of the task sees it.", Histogram, []string{labelActivity, labelQueue}, usual},
	TaskRetries: {"perdure_task_retries_total", "Attempts that failed or timed out and are retried.", Counter, []string{labelActivity, labelQueue}, nil},
	TaskFailures: {
		"perdure_task_failures_total", "Attempts that failed, by the kind of failure: error, permanent, panic, canceled, worker_lost, poison, attempts_spent, history_limit, or a kind of engine error.", Counter,
		[]string{labelActivity, labelQueue, labelKind},
		nil,
	},
	TaskTimeouts: {
		"perdure_task_timeouts_total", "Time-outs of tasks, by kind: schedule_to_start, start_to_close, heartbeat, schedule_to_close.", Counter,
		[]string{labelActivity, labelQueue, labelTimeout},
		nil,
	},
	TasksDead:    {"perdure_dead_tasks_total", "Tasks that failed permanently and became dead tasks.", Counter, []string{labelActivity, labelQueue}, nil},
	DeadRequeued: {"perdure_dead_tasks_requeued_total", "Dead tasks that were requeued.", Counter, []string{labelActivity, labelQueue}, nil},
	DeadRemoved:  {"perdure_dead_tasks_removed_total", "Dead tasks that were removed.", Counter, nil, nil},
	Tasks: {
		"perdure_tasks", "Open tasks of runs that this node owns: waiting for a worker, delayed (by a back-off or a delay), claimed.", Gauge,
		[]string{labelQueue, labelState},
		nil,
	},
	TaskOldest:   {"perdure_task_oldest_seconds", "How long the oldest waiting task has waited.", Gauge, []string{labelQueue}, nil},
	QueuePaused:  {"perdure_queue_paused", "1 while a queue is paused.", Gauge, []string{labelQueue}, nil},
	QueueWorkers: {"perdure_queue_workers", "Workers of this node that serve a queue.", Gauge, []string{labelQueue}, nil},
	QueueSlots:   {"perdure_queue_slots", "Slots of these workers that tasks of other nodes do not use at the moment.", Gauge, []string{labelQueue}, nil},

	PoolSlots:   {"perdure_pool_slots", "How many tasks this process may execute at once.", Gauge, nil, nil},
	PoolBusy:    {"perdure_pool_slots_busy", "How many tasks this process executes.", Gauge, nil, nil},
	PoolWaiting: {"perdure_pool_waiting", "Tasks that this process has claimed and that wait for a slot.", Gauge, nil, nil},
	PoolLost:    {"perdure_pool_lost", "Tasks that still run although their claim is lost: their slots are not free.", Gauge, nil, nil},
	PoolClosed:  {"perdure_pool_closed", "1 while the process takes no further tasks, by reason: load, memory, paused, draining.", Gauge, []string{labelReason}, nil},

	BreakerState:       {"perdure_breaker_state", "1 for the current state of a circuit breaker: closed, open, half_open.", Gauge, []string{labelBreaker, labelState}, nil},
	BreakerTransitions: {"perdure_breaker_transitions_total", "Changes of the state of a circuit breaker that this node has seen, by the new state.", Counter, []string{labelBreaker, labelState}, nil},
	LimitHolders:       {"perdure_limit_holders", "Tasks of this node that hold a permit of a limit, over all its keys.", Gauge, []string{labelLimit}, nil},
	LimitWaiters:       {"perdure_limit_waiters", "Groups of tasks of this node that wait for a limit, over all its keys.", Gauge, []string{labelLimit}, nil},
	LimitPermits:       {"perdure_limit_permits", "Permits of a limit that this node may hand out, over all keys in use.", Gauge, []string{labelLimit}, nil},
	LimitRefusals:      {"perdure_limit_refusals_total", "Times that a task was held back, by cause: limit, rate, breaker.", Counter, []string{labelReason}, nil},

	ScheduleTicks: {
		"perdure_schedule_ticks_total", "Ticks of schedules, by outcome: fired, triggered, backfilled, skipped (another execution was open), missed, failed.", Counter,
		[]string{labelSchedule, labelOutcome},
		nil,
	},
	TimersFired:   {"perdure_timers_fired_total", "Timers of workflows that fired.", Counter, nil, nil},
	TimerLateness: {"perdure_timer_lateness_seconds", "Time from when a timer was due to when it fired.", Histogram, nil, quick},
	Messages: {
		"perdure_messages_total", "Messages to executions and entities that their owner has handled, except calls, by kind, and whether they took effect (applied) or not (refused).", Counter,
		[]string{labelKind, labelOutcome},
		nil,
	},

	EntityCalls: {
		"perdure_entity_calls_total", "Calls of operations, views and RPCs, by outcome: completed, failed, refused (the mailbox was full, or the section did not hold the lock).", Counter,
		[]string{labelEntity, labelOperation, labelOutcome},
		nil,
	},
	EntityCallSeconds:   {"perdure_entity_call_seconds", "Time from when a call reached the owner of the entity to when it had ended.", Histogram, []string{labelEntity, labelOperation}, usual},
	EntityHandOver:      {"perdure_entity_handover_seconds", "How long a worker had the calls of an entity that were handed over together.", Histogram, []string{labelEntity}, usual},
	EntityHandOverCalls: {"perdure_entity_handover_calls", "Calls that were handed over together.", Histogram, []string{labelEntity}, many},
	EntityCallsWaiting:  {"perdure_entity_calls_waiting", "Calls that wait for entities of this node and that no worker has.", Gauge, []string{labelEntity}, nil},
	EntitiesLoaded:      {"perdure_entities_loaded", "Entities and services, by key, that this node has in memory.", Gauge, []string{labelEntity}, nil},
	LockWait:            {"perdure_lock_wait_seconds", "Time from when a section asked an entity for its lock to when it got it.", Histogram, []string{labelEntity}, long},
	LockHeld:            {"perdure_lock_held_seconds", "How long a section had the lock of an entity, by how it ended: released, or taken by an operator.", Histogram, []string{labelEntity, labelOutcome}, long},
	LocksHeld:           {"perdure_locks_held", "Locked entities that this node has in memory: all with waiting calls or sections, and entities that were called recently.", Gauge, []string{labelEntity}, nil},
	LockWaiters:         {"perdure_lock_waiters", "Sections that wait for the lock of an entity of this node.", Gauge, []string{labelEntity}, nil},

	Commits: {
		"perdure_commits_total", "Commits of batches, by the answer of the store: ok, retryable, away, unknown, refused, fenced.", Counter,
		[]string{labelOutcome},
		nil,
	},
	CommitSeconds: {"perdure_commit_seconds", "Time that a commit took.", Histogram, nil, quick},
	CommitRows:    {"perdure_commit_rows", "Rows that a commit wrote.", Histogram, nil, many},
	CommitInputs:  {"perdure_commit_inputs", "Inputs (turns, messages, timers, reports) that shared a commit.", Histogram, nil, many},
	Refences:      {"perdure_refences_total", "Times that a lane moved its fence, because the outcome of a commit was unknown.", Counter, nil, nil},
	Reads:         {"perdure_reads_total", "Reads that lanes made: ok or failed.", Counter, []string{labelOutcome}, nil},
	SetAside:      {"perdure_rows_set_aside_total", "Unreadable rows that were set aside, by reason: corrupt rows, and rows that only a newer version reads.", Counter, []string{labelReason}, nil},
	Renewals:      {"perdure_lease_renewals_total", "Renewals of the lease of this node: ok or failed.", Counter, []string{labelOutcome}, nil},
	ClockJumps:    {"perdure_store_clock_jumps_total", "Jumps of the store's clock that this node has noticed.", Counter, nil, nil},
	ClockAhead: {
		"perdure_store_clock_ahead_seconds", "How far the store's clock is ahead of this node's time, beyond what the round trip explains; negative if it is behind.",
		Gauge, nil, nil,
	},
	LeaseLeft:   {"perdure_lease_left_seconds", "How long the lease of this node certainly holds; 0 without a lease.", Gauge, nil, nil},
	ShardsOwned: {"perdure_shards_owned", "Shards that this node owns.", Gauge, nil, nil},
	LaneBytes:   {"perdure_lane_held_bytes", "Bytes of inputs that wait or are not committed.", Gauge, nil, nil},
	LaneInbox:   {"perdure_lane_inbox", "Inputs that wait for a lane to take them.", Gauge, nil, nil},
	Nodes:       {"perdure_nodes", "Nodes with a lease, as far as this node knows.", Gauge, nil, nil},
	StoreLog:    {"perdure_store_log_bytes", "Size of the write-ahead log of an SQLite store.", Gauge, nil, nil},

	DoorRequests: {
		"perdure_door_requests_total", "Requests that a door of the server (grpc, rest, flovyn) has answered, by method and by the code of the reply.", Counter,
		[]string{labelDoor, labelMethod, labelCode},
		nil,
	},
	DoorSeconds: {"perdure_door_request_seconds", "Time from a request to the end of its reply. Streams and calls that wait count too.", Histogram, []string{labelDoor, labelMethod}, usual},
	DoorOpen:    {"perdure_door_requests_open", "Requests and streams that are being answered.", Gauge, []string{labelDoor, labelMethod}, nil},
	DoorRefusals: {
		"perdure_door_refusals_total", "Requests that were refused, by reason: unauthenticated, denied, exhausted, invalid.", Counter,
		[]string{labelDoor, labelReason},
		nil,
	},

	ServerConnected: {"perdure_server_connected", "1 while an app that Dial has opened has a connection to its server, 0 while it tries to get one.", Gauge, nil, nil},
	StreamsBroken:   {"perdure_server_streams_broken_total", "How often the stream of such an app to its server has broken.", Counter, nil, nil},
}

// Families returns the table.
func Families() []Family { return families[:] }
