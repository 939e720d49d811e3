package audit

import (
	"slices"

	"github.com/perdure/perdure/internal/authz"
)

// row says which calls of an action are recorded.
type row struct {
	action authz.Action
	// calls are the recorded methods of api.Backend and api.Admin; none for an action that is not
	// recorded.
	calls []string
	// why says why an action is not recorded, or in which cases its calls are recorded.
	why string
}

// Reasons of actions that are not recorded.
const (
	reads    = "it changes nothing"
	programs = "it is what programs do, and the history of the execution or the entity shows it"
	builtIn  = "only of what Perdure itself runs, such as schedules: otherwise it is what programs do"
	changes  = "except to list and to show"
)

// table says which calls are recorded. Every action of package authz has a row.
var table = []row{
	{action: "server:describe", why: reads},
	{action: "execution:read", why: reads},
	{action: "series:read", why: reads},
	{action: "execution:query", why: reads},
	{action: "execution:start", calls: []string{"Start", "StartMany", "Run"}, why: builtIn},
	{action: "execution:signal", calls: []string{"Signal"}, why: builtIn},
	{action: "execution:update", calls: []string{"Update"}, why: builtIn},
	{action: "execution:cancel", calls: []string{"Cancel"}},
	{action: "execution:terminate", calls: []string{"Terminate"}},
	{action: "execution:pause", calls: []string{"Pause", "Resume"}},
	{action: "execution:unread", calls: []string{"Signals"}, why: changes},
	{action: "execution:fork", calls: []string{"Fork", "Retry", "Reset"}},
	{action: "execution:import", calls: []string{"Import"}},
	{action: "execution:delete", calls: []string{"Delete"}},
	{action: "batch:read", why: reads},
	{action: "batch:start", calls: []string{"StartBatch"}},
	{action: "batch:cancel", calls: []string{"CancelBatch"}},
	{action: "promise:settle", why: programs},
	{action: "entity:read", why: reads},
	{action: "entity:call", why: programs},
	{action: "entity:mailbox", calls: []string{"Mailbox"}, why: changes},
	{action: "entity:edit", calls: []string{"EditEntity"}},
	{action: "lock:release", calls: []string{"Unlock"}},
	{action: "task:read", why: reads},
	{action: "deadtask:read", why: reads},
	{action: "deadtask:requeue", calls: []string{"Requeue", "UndoRequeue"}},
	{action: "deadtask:purge", calls: []string{"PurgeDead"}},
	{action: "message:deliver", why: "the message is recorded as the call that it stands for"},
	{action: "message:read", why: reads},
	{action: "queue:read", why: reads},
	{action: "queue:pause", calls: []string{"PauseQueue", "ResumeQueue"}},
	{action: "limit:read", why: reads},
	{action: "limit:set", calls: []string{"SetLimit", "DeleteLimit", "DisableLimit", "EnableLimit"}},
	{action: "breaker:read", why: reads},
	{action: "breaker:set", calls: []string{"SetBreaker", "DeleteBreaker", "TripBreaker", "ResetBreaker", "PauseBreaker"}},
	{action: "allowance:read", why: reads},
	{action: "worker:read", why: reads},
	{action: "worker:work", why: programs},
	{action: "token:create", why: "it creates a key, which is recorded as key:write"},
	{action: "view:read", why: reads},
	{action: "view:write", calls: []string{"SetView", "DeleteView"}},
	{action: "replayreport:read", why: reads},
	{action: "replayreport:add", calls: []string{"AddReplayReport"}},
	{action: "feed:watch", why: reads},
	{action: "allowance:set", calls: []string{"SetAllowance"}},
	{action: "tenant:read", why: reads},
	{action: "tenant:write", calls: []string{"CreateTenant", "SetTenant"}},
	{action: "key:read", why: reads},
	{action: "key:write", calls: []string{"CreateKey", "RevokeKey", "RotateKey"}},
	{action: "login:create", calls: []string{"CreateLogin"}},
	{action: "login:show", why: reads},
	{action: "login:leave", why: "it ends the session of the caller itself, which is recorded as login:end"},
	{action: "login:read", why: reads},
	{action: "login:end", calls: []string{"EndLogin"}},
	{action: "setting:read", why: reads},
	{action: "setting:write", calls: []string{"SetSetting"}},
	{action: "node:read", why: reads},
	{action: "node:drain", calls: []string{"DrainNode", "Rebalance"}},
	{action: "session:read", why: reads},
	{action: "session:drain", calls: []string{"DrainWorker"}},
	{action: "audit:read", why: reads},
}

// actionOf returns the action of a recorded call.
func actionOf(call string) authz.Action {
	for i := range table {
		if slices.Contains(table[i].calls, call) {
			return table[i].action
		}
	}
	return ""
}

// administrative reports whether a refused attempt at an action is recorded. It is true for actions
// that only admins may take, for token:create, and for recorded actions. It is false for actions
// that are recorded only for schedules and other workflows of Perdure itself.
func administrative(action authz.Action) bool {
	if r := authz.ByAction(action); r != nil && r.Group == authz.Administer || action == "token:create" {
		return true
	}
	for i := range table {
		if table[i].action == action {
			return len(table[i].calls) > 0 && table[i].why != builtIn
		}
	}
	return false
}
