package wire

import (
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// WorkerList builds the message with the workers of all live nodes.
func WorkerList(ws []api.WorkerInfo) *pb.WorkerList {
	return &pb.WorkerList{Workers: each(ws, func(w api.WorkerInfo) *pb.WorkerInfo {
		return &pb.WorkerInfo{
			Node: node(w.Node), Host: text(w.Host), Name: w.Name, Version: text(w.Version), Workflows: w.Workflows, Entities: w.Entities, Queues: w.Queues,
			Activities: w.Activities, Slots: int64(w.Slots), Limits: w.Limits, Breakers: w.Breakers, Draining: w.Draining, Alike: int64(w.Alike),
		}
	})}
}

// ReadWorkerList reads workers.
func ReadWorkerList(tenant string, l *pb.WorkerList) ([]api.WorkerInfo, error) {
	return readEach(tenant, l.GetWorkers(), func(_ string, w *pb.WorkerInfo) (api.WorkerInfo, error) {
		id, err := readNode(w.GetNode())
		return api.WorkerInfo{
			Node: id, Host: w.GetHost(), Name: w.GetName(), Version: w.GetVersion(), Workflows: w.GetWorkflows(), Entities: w.GetEntities(), Queues: w.GetQueues(),
			Activities: w.GetActivities(), Slots: int(w.GetSlots()), Limits: w.GetLimits(), Breakers: w.GetBreakers(), Draining: w.GetDraining(), Alike: int(w.GetAlike()),
		}, err
	})
}

// QueueList builds the message with the queues of a tenant.
func QueueList(l api.QueueList) *pb.QueueList {
	return &pb.QueueList{Counted: l.Counted, Queues: each(l.Queues, func(q api.QueueInfo) *pb.QueueInfo {
		return &pb.QueueInfo{
			Name: q.Name, Open: int64(q.Open), Waiting: int64(q.Waiting), Delayed: int64(q.Delayed), Claimed: int64(q.Claimed), Oldest: int64(q.Oldest),
			Workers: int64(q.Workers), Slots: int64(q.Slots), Paused: q.Paused, Unserved: q.Unserved,
		}
	})}
}

// ReadQueueList reads queues.
func ReadQueueList(_ string, l *pb.QueueList) (api.QueueList, error) {
	return api.QueueList{Counted: l.GetCounted(), Queues: each(l.GetQueues(), func(q *pb.QueueInfo) api.QueueInfo {
		return api.QueueInfo{
			Name: q.GetName(), Open: int(q.GetOpen()), Waiting: int(q.GetWaiting()), Delayed: int(q.GetDelayed()), Claimed: int(q.GetClaimed()),
			Oldest: model.Time(q.GetOldest()), Workers: int(q.GetWorkers()), Slots: int(q.GetSlots()), Paused: q.GetPaused(), Unserved: q.GetUnserved(),
		}
	})}, nil
}

// Limit builds the message for the rule of a limit.
func Limit(l api.Limit) *pb.Limit {
	return &pb.Limit{
		Name: l.Name, Queue: l.Queue, Activity: l.Kind, Scope: wordNumber[pb.LimitScope](limitScopes, l.Per), Key: l.Key,
		Concurrency: int64(l.Numbers.Concurrency), Rate: l.Numbers.Rate, Period: int64(l.Numbers.Per), Burst: l.Numbers.Burst,
		Disabled: l.Disabled, Reason: text(l.Why),
	}
}

// ReadLimit reads the rule of a limit. The rule gets the tenant of the connection.
func ReadLimit(tenant string, l *pb.Limit) (out api.Limit, err error) {
	out = api.Limit{
		Name: l.GetName(), Tenant: tenant, Queue: l.GetQueue(), Kind: l.GetActivity(), Key: l.GetKey(),
		Numbers:  api.Numbers{Concurrency: int(l.GetConcurrency()), Rate: l.GetRate(), Per: time.Duration(l.GetPeriod()), Burst: l.GetBurst()},
		Disabled: l.GetDisabled(), Why: l.GetReason(),
	}
	out.Per, err = readWord("scope of limits", limitScopes, l.GetScope())
	return out, err
}

// LimitList builds the message with the limits of a tenant.
func LimitList(ls []api.LimitStatus) *pb.LimitList {
	return &pb.LimitList{Limits: each(ls, func(l api.LimitStatus) *pb.LimitStatus {
		return &pb.LimitStatus{
			Rule: Limit(l.Rule), Known: l.Known, OtherKeys: int64(l.Others.Keys), OtherHeld: int64(l.Others.Held), OtherWaiting: int64(l.Others.Waiting),
			Uses: each(l.Uses, func(u api.LimitUse) *pb.LimitUse {
				return &pb.LimitUse{
					Key: text(u.Key), Held: int64(u.Held), Waiting: int64(u.Waiting), Holders: each(u.Holders, TaskRef), Waiters: each(u.Waiters, TaskRef),
				}
			}),
		}
	})}
}

// ReadLimitList reads limits.
func ReadLimitList(tenant string, l *pb.LimitList) ([]api.LimitStatus, error) {
	return readEach(tenant, l.GetLimits(), func(tenant string, l *pb.LimitStatus) (api.LimitStatus, error) {
		out := api.LimitStatus{
			Known: l.GetKnown(), Others: api.OtherKeys{Keys: int(l.GetOtherKeys()), Held: int(l.GetOtherHeld()), Waiting: int(l.GetOtherWaiting())},
		}
		var err error
		if out.Rule, err = ReadLimit(tenant, l.GetRule()); err != nil {
			return out, err
		}
		out.Uses, err = readEach(tenant, l.GetUses(), readLimitUse)
		return out, err
	})
}

// LimitTrial builds the message that says what a limit would do.
func LimitTrial(t api.LimitTrial) *pb.LimitTrial {
	return &pb.LimitTrial{
		OtherKeys: int64(t.Others.Keys), OtherHeld: int64(t.Others.Held), OtherWaiting: int64(t.Others.Waiting), Partial: t.Partial,
		Uses: each(t.Uses, func(u api.TrialUse) *pb.TrialUse {
			return &pb.TrialUse{
				Key: text(u.Key), Held: int64(u.Held), Waiting: int64(u.Waiting), Delayed: int64(u.Delayed), Excess: int64(u.Excess), Clears: int64(u.Clears),
			}
		}),
	}
}

// ReadLimitTrial reads what a limit would do.
func ReadLimitTrial(tenant string, t *pb.LimitTrial) (out api.LimitTrial, err error) {
	out = api.LimitTrial{
		Others: api.OtherKeys{Keys: int(t.GetOtherKeys()), Held: int(t.GetOtherHeld()), Waiting: int(t.GetOtherWaiting())}, Partial: t.GetPartial(),
	}
	out.Uses, err = readEach(tenant, t.GetUses(), func(_ string, u *pb.TrialUse) (api.TrialUse, error) {
		return api.TrialUse{
			Key: u.GetKey(), Held: int(u.GetHeld()), Waiting: int(u.GetWaiting()), Delayed: int(u.GetDelayed()), Excess: int(u.GetExcess()), Clears: time.Duration(u.GetClears()),
		}, nil
	})
	return out, err
}

func readLimitUse(tenant string, u *pb.LimitUse) (out api.LimitUse, err error) {
	out = api.LimitUse{Key: u.GetKey(), Held: int(u.GetHeld()), Waiting: int(u.GetWaiting())}
	if out.Holders, err = readEach(tenant, u.GetHolders(), ReadTaskRef); err != nil {
		return out, err
	}
	out.Waiters, err = readEach(tenant, u.GetWaiters(), ReadTaskRef)
	return out, err
}

// BreakerRule builds the message for a rule that says when breakers open.
func BreakerRule(b api.Breaker) *pb.BreakerRule {
	return &pb.BreakerRule{
		Name: b.Name, Failures: int64(b.Failures), Ratio: b.Ratio, Calls: int64(b.Calls), Window: int64(b.Window), ResetAfter: int64(b.Reset), Probes: int64(b.Probes),
		Successes: int64(b.Successes), Lease: int64(b.Lease), MaxRetryAfter: int64(b.MaxRetryAfter),
	}
}

// ReadBreakerRule reads a rule.
func ReadBreakerRule(_ string, b *pb.BreakerRule) (api.Breaker, error) {
	return api.Breaker{
		Name: b.GetName(), Failures: int(b.GetFailures()), Ratio: b.GetRatio(), Calls: int(b.GetCalls()), Window: time.Duration(b.GetWindow()),
		Reset: time.Duration(b.GetResetAfter()), Probes: int(b.GetProbes()), Successes: int(b.GetSuccesses()), Lease: time.Duration(b.GetLease()),
		MaxRetryAfter: time.Duration(b.GetMaxRetryAfter()),
	}, nil
}

// AllowanceValue builds the message that says how much of the system a tenant may use.
func AllowanceValue(a api.Allowance) *pb.AllowanceValue {
	return &pb.AllowanceValue{Open: a.Open, Starts: a.Starts, Weight: int64(a.Weight), Retention: int64(a.Retention)}
}

// ReadAllowanceValue reads an allowance.
func ReadAllowanceValue(_ string, a *pb.AllowanceValue) (api.Allowance, error) {
	return api.Allowance{Open: a.GetOpen(), Starts: a.GetStarts(), Weight: int(a.GetWeight()), Retention: time.Duration(a.GetRetention())}, nil
}

// BreakerRuleList builds the message with the rules of a tenant.
func BreakerRuleList(rules []api.Breaker) *pb.BreakerRuleList {
	return &pb.BreakerRuleList{Rules: each(rules, BreakerRule)}
}

// ReadBreakerRuleList reads rules.
func ReadBreakerRuleList(tenant string, l *pb.BreakerRuleList) ([]api.Breaker, error) {
	return readEach(tenant, l.GetRules(), ReadBreakerRule)
}

// BreakerList builds the message with the breakers of a tenant.
func BreakerList(bs []api.BreakerStatus) *pb.BreakerList {
	return &pb.BreakerList{Breakers: each(bs, func(b api.BreakerStatus) *pb.BreakerStatus {
		return &pb.BreakerStatus{
			Name: b.Name, State: wordNumber[pb.BreakerState](breakerStates, b.State), Since: int64(b.Since), Until: int64(b.Until), Why: text(b.Why), Held: b.Held,
			Failures: b.Failures, Calls: b.Calls, Probes: int64(b.Probes), Successes: int64(b.Successes), Rule: BreakerRule(b.Rule),
		}
	})}
}

// ReadBreakerList reads breakers.
func ReadBreakerList(tenant string, l *pb.BreakerList) ([]api.BreakerStatus, error) {
	return readEach(tenant, l.GetBreakers(), func(tenant string, b *pb.BreakerStatus) (api.BreakerStatus, error) {
		out := api.BreakerStatus{
			Name: b.GetName(), Since: model.Time(b.GetSince()), Until: model.Time(b.GetUntil()), Why: b.GetWhy(), Held: b.GetHeld(), Failures: b.GetFailures(),
			Calls: b.GetCalls(), Probes: int(b.GetProbes()), Successes: int(b.GetSuccesses()),
		}
		var err error
		if out.Rule, err = ReadBreakerRule(tenant, b.GetRule()); err != nil {
			return out, err
		}
		out.State, err = readWord("state of breakers", breakerStates, b.GetState())
		return out, err
	})
}

// QueueStatusList builds the message with the queues of a tenant as one server sees them.
func QueueStatusList(qs []api.QueueStatus) *pb.QueueStatusList {
	return &pb.QueueStatusList{Queues: each(qs, func(q api.QueueStatus) *pb.QueueStatus {
		return &pb.QueueStatus{
			Name: q.Name, Paused: q.Paused, Why: text(q.Why), Here: q.Here, Waiting: int64(q.Waiting), Delayed: int64(q.Delayed), Claimed: int64(q.Claimed),
			Oldest: int64(q.Oldest), Workers: int64(q.Workers), Slots: int64(q.Slots),
		}
	})}
}

// ReadQueueStatusList reads queues.
func ReadQueueStatusList(_ string, l *pb.QueueStatusList) ([]api.QueueStatus, error) {
	return each(l.GetQueues(), func(q *pb.QueueStatus) api.QueueStatus {
		return api.QueueStatus{
			Name: q.GetName(), Paused: q.GetPaused(), Why: q.GetWhy(), Here: q.GetHere(), Waiting: int(q.GetWaiting()), Delayed: int(q.GetDelayed()),
			Claimed: int(q.GetClaimed()), Oldest: model.Time(q.GetOldest()), Workers: int(q.GetWorkers()), Slots: int(q.GetSlots()),
		}
	}), nil
}
