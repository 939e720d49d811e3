package core

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// TaskReasons returns what the code of a run waits for. It replaces a wait for a task by the reason
// why that task waits. A wait names only the kind of its task, so waits and tasks of a kind are
// matched in the order in which they were scheduled. A wait stays as it is if why has no reason for
// its task.
func TaskReasons(waits []model.Reason, tasks []*Task, why func(*Task) (model.Reason, bool)) []model.Reason {
	reasons := slices.Clone(waits)
	next := map[string]int{} // per kind: the first task that no wait has been matched with
	for i := range reasons {
		if reasons[i].Code != model.WaitTask {
			continue
		}
		kind := reasons[i].Name
		n := next[kind]
		for n < len(tasks) && tasks[n].Spec.Kind != kind {
			n++
		}
		next[kind] = n + 1
		if n >= len(tasks) {
			continue
		}
		if r, ok := why(tasks[n]); ok {
			reasons[i] = r
		}
	}

	return reasons
}

// LastError returns the message of the last failed attempt of a task; empty when none has failed.
func LastError(t *Task) string {
	if n := len(t.Failures); n > 0 && t.Failures[n-1].Failure != nil {
		return t.Failures[n-1].Failure.Message
	}
	return ""
}

// LockedOut reports whether a message must wait until the section that holds the lock of the entity
// ends. All messages must, except the calls of that section.
func LockedOut(row *model.Entity, m *model.Message) bool {
	return row.Locked() && (m.Section == "" || sectionOf(m) != row.Holder)
}

// EntityReason returns what the callers of an entity wait for when a worker has its code. lockedOut
// says that a lock keeps callers out.
func EntityReason(row *model.Entity, lockedOut bool) model.Reason {
	name := row.Address.EntityName()
	if !lockedOut {
		return model.Reason{Code: model.WaitMailbox, Name: name, Detail: "calls before it are being made"}
	}
	h := &row.Holder
	return model.Reason{Code: model.WaitLock, Name: name, Detail: h.Address.Type + "/" + h.Address.Key + " (" + h.Run.String() + ")"}
}
