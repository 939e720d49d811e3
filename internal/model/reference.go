package model

import "strings"

// Kinds of references.
const (
	RefExecution = "execution"
	RefEntity    = "entity" // an entity or a service
	RefLimit     = "limit"
	RefBreaker   = "breaker"
	RefQueue     = "queue"
	RefCode      = "code" // the code of a workflow, an entity or an activity
	RefShard     = "shard"
	RefSignal    = "signal"
	RefPromise   = "promise"
	RefUpdate    = "update"
	RefStep      = "step"
)

// Reference names what a reason is about, so that programs need not parse the text of the reason.
type Reference struct {
	Kind string
	// Address is set for an execution, an entity or a service. Name is set for everything else.
	Address Address
	Name    string
}

// Stands reports whether the reference names something that other executions may wait for as well.
// A signal, a promise, an update and a step belong to their execution.
func (r *Reference) Stands() bool {
	switch r.Kind {
	case RefSignal, RefPromise, RefUpdate, RefStep:
		return false
	}
	return true
}

// References returns what a reason is about. tenant is the tenant of the execution, task or call
// that has the reason.
func (r *Reason) References(tenant string) []Reference {
	named := func(kind, name string) []Reference {
		if name == "" {
			return nil
		}
		return []Reference{{Kind: kind, Name: name}}
	}

	switch r.Code {
	case WaitChild, WaitAnswer:
		return addressed(tenant, r.Name)
	case WaitLock, WaitMailbox:
		if strings.HasPrefix(r.Name, ServicePrefix) || strings.HasPrefix(r.Name, EntityPrefix) {
			return addressed(tenant, r.Name)
		}
		return addressed(tenant, EntityPrefix+r.Name)
	case WaitPermit, WaitRate:
		return named(RefLimit, r.Name)
	case WaitBreaker:
		return named(RefBreaker, r.Name)
	case WaitLine, WaitPaused:
		return named(RefQueue, r.Name)
	case WaitTask:
		return append(named(RefStep, r.Name), named(RefQueue, r.Detail)...)
	case WaitWorker, WaitElsewhere, WaitSlot:
		return named(RefCode, r.Name)
	case WaitOwner:
		return named(RefShard, r.Name)
	case WaitSignal:
		return named(RefSignal, r.Name)
	case WaitPromise:
		return named(RefPromise, r.Name)
	case WaitHandler:
		return named(RefUpdate, r.Name)
	case WaitStep, WaitRetry:
		return named(RefStep, r.Name)
	default:
		return nil
	}
}

// addressed returns the reference to an execution or an entity that is written as type/key. Names
// of types have no slash.
func addressed(tenant, name string) []Reference {
	typ, key, ok := strings.Cut(name, "/")
	if !ok {
		return nil
	}
	r := Reference{Kind: RefExecution, Address: Address{Tenant: tenant, Type: typ, Key: key}}
	if r.Address.IsEntity() {
		r.Kind = RefEntity
	}
	return []Reference{r}
}
