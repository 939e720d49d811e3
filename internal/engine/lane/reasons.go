package lane

import (
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

// hasCode reports whether one of the reasons has the code.
func hasCode(rs []model.Reason, code model.ReasonCode) bool {
	for i := range rs {
		if rs[i].Code == code {
			return true
		}
	}
	return false
}

func hasKind(events []model.Event, k model.EventKind) bool {
	return slices.ContainsFunc(events, func(e model.Event) bool { return e.Kind == k })
}

// isForCode reports whether an event matters to the code. Events about the progress of an open task
// do not matter to the code.
func isForCode(e model.Event) bool {
	switch e.Kind {
	case model.EventTaskClaimed, model.EventTaskReturned:
		return false
	case model.EventAttemptFailed:
		return e.Worker == "" // an event of a task names its worker
	case model.EventTaskTimedOut:
		return e.Due == 0
	default:
		return true
	}
}

// isForAllTasks reports whether an event may change what each task of its run waits for.
func isForAllTasks(e model.Event) bool {
	return e.Kind == model.EventPaused || e.Kind == model.EventResumed || e.Kind == model.EventCancelRequest
}

// noWorker returns the reason that no worker here has the code of the address.
func noWorker(e *entry) model.Reason {
	why := model.Reason{Code: model.WaitWorker, Name: e.address.Type}
	if word, name, ok := strings.Cut(e.address.Type, ":"); ok && e.isEntity() {
		why.Detail, why.Name = word, name
	}
	if e.known && e.x != nil && e.x.Pin != "" {
		why.Detail = "version " + e.x.Pin + " of workflow"
	}
	return why
}
