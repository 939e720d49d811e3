package diagnosis

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// Run is what is known about an open run.
type Run struct {
	Shard   model.ShardID
	Address model.Address
	// Task is set if the run is a standalone task. Such a run needs no workflow code.
	Task *model.TaskSpec
	// Pin is the version that the run is pinned to. It may be empty if World.NeedsPin is false,
	// because then the version does not matter.
	Pin string
	// Waits are the things that the run waits for, the main one first. They come from the owner of
	// the run, or from the store if the owner does not answer.
	Waits []model.Reason
}

// Judge returns why a run makes no progress, the main reason first. If no process can work on the
// run, that reason comes before the things that the code of the run waits for. There are two
// exceptions. If the row of the run cannot be used, Judge returns only the reasons in r.Waits. And
// if no process is alive at all, that reason comes after the things that the code waits for.
func (w *World) Judge(r *Run) []model.Reason {
	var waits []model.Reason
	for _, why := range r.Waits {
		// Several steps may wait for the same thing. Name that reason only once.
		if why = w.addServed(r, why); !slices.Contains(waits, why) {
			waits = append(waits, why)
		}
	}

	if len(waits) > 0 && unreadable(waits[0].Code) {
		return waits // the row is the problem, so no process could run it
	}
	why, stands := w.WhyUnowned(r.Shard)
	if !stands && r.Task == nil {
		why, stands = w.WhyNoCode(r.Shard, r.Address, r.Pin, waits)
	}
	if !stands {
		return waits
	}
	if len(w.live) == 0 && len(waits) > 0 && waits[0].Code != model.WaitTurn {
		// This is the store of a stopped program: people ask what its executions wait for.
		return append(waits, why)
	}

	// No process can continue the run, so drop a reason that says that the run is ready (WaitTurn).
	// Also drop a reason that says the same as why.
	rest := slices.DeleteFunc(waits, func(o model.Reason) bool {
		return o.Code == model.WaitTurn || o.Code == why.Code && o.Name == why.Name
	})
	return append([]model.Reason{why}, rest...)
}

// addServed completes the reason of a task that waits for a worker. If no live process has such a
// worker, addServed returns a reason that says so. Otherwise it returns the reason unchanged.
func (w *World) addServed(r *Run, why model.Reason) model.Reason {
	if why.Code != model.WaitWorker {
		return why
	}
	queue, ok := queueOf(why.Detail)
	if !ok {
		return why
	}
	if judged, unserved := w.WhyUnserved(r.Address.Tenant, &model.TaskSpec{Queue: queue, Kind: why.Name}); unserved {
		return judged
	}
	return why
}

// queueOf returns the queue that the detail of a reason names, such as mails for the detail "queue
// mails, activity".
func queueOf(detail string) (string, bool) {
	const before, after = "queue ", ", activity"
	if len(detail) <= len(before)+len(after) || detail[:len(before)] != before || detail[len(detail)-len(after):] != after {
		return "", false
	}
	return detail[len(before) : len(detail)-len(after)], true
}

// unreadable reports whether the row itself is the problem: it is damaged, of a newer version, or
// refused by the store.
func unreadable(c model.ReasonCode) bool {
	return c == model.WaitPoison || c == model.WaitCorrupt || c == model.WaitNewer
}
