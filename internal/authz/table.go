package authz

import "slices"

// Names of the services.
const (
	clientMethod = "/perdure.v1.ClientService/"
	workerMethod = "/perdure.v1.WorkerService/"
	adminMethod  = "/perdure.v1.AdminService/"

	flovynFlows  = "/flovyn.v1.WorkflowDispatch/"
	flovynTasks  = "/flovyn.v1.TaskExecution/"
	flovynQuery  = "/flovyn.v1.WorkflowQuery/"
	flovynWorker = "/flovyn.v1.WorkerLifecycle/"
)

// table is the one table of what callers can do. A method or an operation has exactly one row.
//
// A method that can do several things is in the row of the most dangerous one. For example, Signals
// and Mailbox can also skip and drop what they list, and Mailbox can interrupt calls. A schedule is
// an execution, so the same actions concern it.
var table = []Rule{
	{"server:describe", Connect, "Tenant", []string{clientMethod + "Server", clientMethod + "Bundle", reflectionV1, reflectionAlpha}, []string{"get-me", "get-server"}},

	{"execution:read", Read, "Execution", client("Describe", "History", "List", "Count", "Tally", "Explain", "Stranded", "Missing", "Await", "State"), []string{
		"list-executions", "count-executions", "tally-executions", "list-stranded", "describe-execution", "explain-execution", "explain-graph", "get-history", "list-events", "watch-events", "get-event-bytes", "get-state-bytes", "export-execution", "get-state", "await-execution", "list-schedules", "get-schedule", "list-ticks", "get-relations",
	}},
	{"login:create", Connect, "Tenant", nil, []string{"create-session"}},
	{"login:show", Connect, "Tenant", nil, []string{"get-session"}},
	{"login:leave", Connect, "Tenant", nil, []string{"end-session"}},
	{"series:read", Read, "Execution", client("Series"), []string{"get-series"}},
	{"execution:query", Read, "Execution", slices.Concat(client("Query"), []string{flovynQuery + "QueryWorkflow"}), []string{"query-execution"}},
	{"execution:start", Use, "Execution", slices.Concat(client("Start", "StartMany", "Run"), prefixed(flovynFlows, "StartWorkflow", "SignalWithStartWorkflow"), prefixed(flovynTasks, "SubmitTask")), []string{"start-execution", "signal-with-start", "submit-task"}},
	{"execution:signal", Use, "Execution", slices.Concat(client("Signal"), []string{flovynFlows + "SignalWorkflow"}), []string{"signal-execution"}},
	{"execution:update", Use, "Execution", client("Update"), []string{"update-execution", "change-schedule", "change-schedules", "set-schedule"}},
	{"execution:cancel", Use, "Execution", slices.Concat(client("Cancel"), []string{flovynTasks + "CancelTask"}), []string{"cancel-execution"}},
	{"execution:terminate", Operate, "Execution", client("Terminate"), []string{"terminate-execution"}},
	{"execution:pause", Operate, "Execution", client("Pause", "Resume"), []string{"pause-execution", "resume-execution"}},
	{"execution:unread", Operate, "Execution", client("Signals"), []string{"list-unread-signals", "skip-unread-signal", "drop-unread-signal"}},
	{"execution:fork", Operate, "Execution", client("Fork", "Retry", "Reset"), []string{"fork-execution", "retry-execution", "reset-execution"}},
	{"execution:import", Operate, "Execution", client("Import"), []string{"import-execution"}},
	{"execution:delete", Operate, "Execution", client("Delete"), []string{"delete-execution"}},
	{"batch:read", Read, "Batch", client("Batch", "ListBatches"), []string{"list-batches", "get-batch"}},
	{"batch:start", Operate, "Batch", client("StartBatch"), []string{"start-batch"}},
	{"batch:cancel", Operate, "Batch", client("CancelBatch"), []string{"cancel-batch"}},
	{"promise:settle", Use, "Promise", slices.Concat(client("Settle"), prefixed(flovynFlows, "ResolvePromise", "RejectPromise")), []string{"resolve-promise", "reject-promise"}},

	{"entity:read", Read, "Entity", client("Entity", "ListEntities"), []string{"list-entities", "get-entity", "get-entity-bytes", "list-locks"}},
	{"entity:call", Use, "Entity", client("Call", "TakeItems"), []string{"call-entity", "send-entity", "stream-entity"}},
	{"entity:mailbox", Operate, "Entity", client("Mailbox"), []string{"list-mailbox", "get-mailbox-bytes", "skip-mailbox-item", "drop-mailbox-item", "interrupt-entity"}},
	{"entity:edit", Operate, "Entity", client("EditEntity"), []string{"edit-entity"}},
	{"lock:release", Operate, "Lock", client("Unlock"), []string{"release-lock"}},

	{"task:read", Read, "Task", client("TaskStates", "TaskLogs", "TaskStream"), []string{"get-task-states", "get-task-logs", "get-task-stream", "watch-task-stream"}},
	{"deadtask:read", Read, "DeadTask", client("ListDead", "CountDead", "GroupDead", "ShowDead"), []string{
		"list-dead-tasks", "count-dead-tasks", "group-dead-tasks", "get-dead-task",
	}},
	{"deadtask:requeue", Operate, "DeadTask", client("Requeue", "UndoRequeue"), []string{"requeue-dead-task", "undo-requeue"}},
	{"deadtask:purge", Operate, "DeadTask", client("PurgeDead"), []string{"purge-dead-task"}},
	{"message:deliver", Use, "Message", client("Deliver"), nil},
	{"message:read", Read, "Message", client("DeadLetters"), nil},

	{"queue:read", Read, "Queue", client("ListQueues", "Queues"), []string{"list-queues"}},
	{"queue:pause", Operate, "Queue", client("PauseQueue", "ResumeQueue"), []string{"pause-queue", "resume-queue"}},
	{"limit:read", Read, "Limit", client("Limits", "TryLimit"), []string{"list-limits", "try-limit"}},
	{"limit:set", Operate, "Limit", client("SetLimit", "DeleteLimit", "DisableLimit", "EnableLimit"), []string{
		"set-limit", "delete-limit", "disable-limit", "enable-limit",
	}},
	{"breaker:read", Read, "Breaker", client("Breakers", "BreakerRules"), []string{"list-breakers", "list-breaker-rules"}},
	{"breaker:set", Operate, "Breaker", client("SetBreaker", "DeleteBreaker", "TripBreaker", "ResetBreaker", "PauseBreaker"), []string{
		"set-breaker-rule", "delete-breaker-rule", "trip-breaker", "reset-breaker", "pause-breaker",
	}},
	{"allowance:read", Read, "Allowance", client("Allowance"), []string{"get-allowance"}},
	{"worker:read", Read, "Worker", client("ListWorkers"), []string{"list-workers"}},
	{"worker:work", Work, "Worker", slices.Concat(
		[]string{workerMethod + "Work", clientMethod + "SendItems"},
		prefixed(flovynFlows, "PollWorkflow", "SubscribeToNotifications", "StartChildWorkflow", "GetEvents", "SubmitWorkflowCommands", "ReportExecutionSpans", "GetVisualWorkflowDefinitionById"),
		prefixed(flovynTasks, "PollTask", "CompleteTask", "FailTask", "ReportProgress", "Heartbeat", "LogMessage", "GetState", "SetState", "ClearState", "ClearAllState", "GetStateKeys", "StreamTaskData"),
		prefixed(flovynWorker, "RegisterWorker", "SendHeartbeat"),
	), nil},
	{"token:create", Operate, "Worker", nil, nil},
	{"view:read", Read, "View", client("Views"), []string{"list-views", "get-view"}},
	{"view:write", Use, "View", client("SetView", "DeleteView"), []string{"set-view", "delete-view"}},
	{"replayreport:read", Read, "ReplayReport", client("ReplayReports", "ReplayReport"), []string{"list-replay-reports", "get-replay-report"}},
	{"replayreport:add", Use, "ReplayReport", client("AddReplayReport"), []string{"add-replay-report"}},
	{"feed:watch", Read, "Feed", client("Watch"), []string{"watch-changes"}},

	{"allowance:set", Administer, Server, client("SetAllowance"), []string{"set-allowance"}},
	{"tenant:read", Administer, Server, admin("Tenants", "Tenant"), []string{"list-tenants", "get-tenant"}},
	{"tenant:write", Administer, Server, admin("CreateTenant", "SetTenant"), []string{"create-tenant", "change-tenant"}},
	{"key:read", Administer, Server, admin("Keys"), []string{"list-keys"}},
	{"key:write", Administer, Server, admin("CreateKey", "RevokeKey", "RotateKey"), []string{"create-key", "revoke-key", "rotate-key"}},
	{"login:read", Administer, Server, admin("Logins"), []string{"list-sessions"}},
	{"login:end", Administer, Server, admin("EndLogin"), []string{"revoke-session"}},
	{"setting:read", Administer, Server, admin("Settings"), []string{"list-settings", "get-setting"}},
	{"setting:write", Administer, Server, admin("SetSetting"), []string{"set-setting", "delete-setting"}},
	{"node:read", Administer, Server, admin("Nodes", "Shards", "Health"), []string{"list-nodes", "list-shards", "get-health"}},
	{"node:drain", Administer, Server, admin("DrainNode", "Rebalance"), []string{"drain-node", "undrain-node", "rebalance-shards"}},
	{"session:read", Administer, Server, admin("WorkerSessions"), []string{"list-worker-sessions"}},
	{"audit:read", Audit, "Audit", admin("Audit"), []string{"list-audit"}},
	{"session:drain", Administer, Server, admin("DrainWorker"), []string{"drain-worker"}},
}

// batchActions are the actions of the verbs of batch jobs.
var batchActions = map[string]Action{
	"cancel": "execution:cancel", "terminate": "execution:terminate", "signal": "execution:signal", "pause": "execution:pause", "resume": "execution:pause",
	"retry": "execution:fork", "reset": "execution:fork", "delete": "execution:delete",
}

// BatchActions returns the actions that a caller needs, apart from batch:start, to start a batch
// job with a verb: to read executions, and to apply the verb to one of them. An unknown verb has no
// action, so every authorizer refuses it.
func BatchActions(verb string) []Action { return []Action{"execution:read", batchActions[verb]} }

// The methods of server reflection, in its two versions.
const (
	reflectionV1    = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	reflectionAlpha = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
)

func client(names ...string) []string { return prefixed(clientMethod, names...) }

func admin(names ...string) []string { return prefixed(adminMethod, names...) }

func prefixed(prefix string, names ...string) []string {
	full := make([]string, len(names))
	for i, name := range names {
		full[i] = prefix + name
	}
	return full
}
