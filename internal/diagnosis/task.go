package diagnosis

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// Flow has the settings for tasks: paused queues, limits and breakers.
type Flow interface {
	// PauseOf reports whether a queue is paused, and why.
	PauseOf(queue string) (model.Reason, bool)
	// RefusalOf returns the limit or breaker that holds a task back.
	RefusalOf(t *core.Task) (model.Reason, bool, error)
}

// Task returns why an open task does not start, from its history, the live workers and the
// settings. The owner of the task also knows how many tasks are before it.
func (w *World) Task(tenant string, t *core.Task, flow Flow) (model.Reason, error) {
	switch {
	case t.Held:
		return model.Reason{Code: model.WaitStep, Name: t.Spec.Kind}, nil
	case t.Visible > w.view.Now && t.Attempt > 0:
		return model.Reason{Code: model.WaitRetry, Name: t.Spec.Kind, Attempt: t.Attempt + 1, Until: t.Visible, Detail: core.LastError(t)}, nil
	case t.Visible > w.view.Now:
		return model.Reason{Code: model.WaitTimer, Until: t.Visible}, nil
	}

	if why, paused := flow.PauseOf(t.Spec.Queue); paused {
		return why, nil
	}
	if why, unserved := w.WhyUnserved(tenant, t.Spec); unserved {
		return why, nil
	}
	if why, refused, err := flow.RefusalOf(t); err != nil || refused {
		return why, err
	}
	return model.Reason{Code: model.WaitLine, Name: t.Spec.Queue, Detail: "every worker that could take it is busy, or it is about to begin"}, nil
}
