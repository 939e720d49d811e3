package core

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// TaskReasons are what the code of a run waits for, with the reason of the task itself where it
// waits for one. A wait names the kind of its task, so the tasks of a kind are taken in the order
// in which they were scheduled. Those that why knows nothing of stay as they are.
func TaskReasons(waits []model.Reason, tasks []*Task, why func(*Task) (model.Reason, bool)) []model.Reason {
	reasons := slices.Clone(waits)
	next := map[string]int{} // by kind: tasks before it have been told of
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

// LastError is the message of the last attempt of a task that failed; empty when none has.
func LastError(t *Task) string {
	if n := len(t.Failures); n > 0 && t.Failures[n-1].Failure != nil {
		return t.Failures[n-1].Failure.Message
	}
	return ""
}

// LockedOut reports whether a message waits for the end of the section that has the entity locked:
// all do, but the calls of that section.
func LockedOut(row *model.Entity, m *model.Message) bool {
	return row.Locked() && (m.Section == "" || sectionOf(m) != row.Holder)
}

// EntityReason says what those wait for who call an entity that a worker has the code of; lockedOut
// tells that a lock keeps somebody out.
func EntityReason(row *model.Entity, lockedOut bool) model.Reason {
	name := row.Address.EntityName()
	if !lockedOut {
		return model.Reason{Code: model.WaitMailbox, Name: name, Detail: "calls before it are being made"}
	}
	h := &row.Holder
	return model.Reason{Code: model.WaitLock, Name: name, Detail: h.Address.Type + "/" + h.Address.Key + " (" + h.Run.String() + ")"}
}
