package core

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// TaskReasons returns what the code of a run waits for. If the code waits for a task, TaskReasons
// replaces that wait by the reason why the task itself waits. A wait names only the kind of its
// task. So TaskReasons matches the waits of a kind with the tasks of that kind in the order in
// which they were scheduled. If why has no reason for a task, the wait stays as it is.
func TaskReasons(waits []model.Reason, tasks []*Task, why func(*Task) (model.Reason, bool)) []model.Reason {
	reasons := slices.Clone(waits)
	next := map[string]int{} // per kind: the first task that is not matched with a wait
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
// ends. All messages must wait, except the calls of that section.
func LockedOut(row *model.Entity, m *model.Message) bool {
	return row.Locked() && (m.Section == "" || sectionOf(m) != row.Holder)
}

// EntityReason returns what the callers of an entity wait for, if a worker that has the code of the
// entity is connected. lockedOut says that a lock keeps callers out.
func EntityReason(row *model.Entity, lockedOut bool) model.Reason {
	name := row.Address.EntityName()
	if !lockedOut {
		return model.Reason{Code: model.WaitMailbox, Name: name, Detail: "earlier calls are being made"}
	}
	h := &row.Holder
	return model.Reason{Code: model.WaitLock, Name: name, Detail: h.Address.Type + "/" + h.Address.Key + " (" + h.Run.String() + ")"}
}
