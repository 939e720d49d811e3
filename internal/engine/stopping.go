package engine

import (
	"errors"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// PrepareStop tells the engine that the process is about to stop the engine, and that the workers
// leave first. If the store takes nothing, the engine makes a few more attempts. After that Run
// returns an error that says what is not stored. Without PrepareStop, workers would wait for a
// store that may never take their reports.
func (e *Engine) PrepareStop() {
	e.stopOnce.Do(func() { close(e.stopping) })
	if inc := e.current(); inc != nil {
		inc.hurry()
	}
}

func (e *Engine) isStopping() bool {
	select {
	case <-e.stopping:
		return true
	default:
		return false
	}
}

// hurry tells all lanes that the node stops.
func (inc *incarnation) hurry() {
	inc.everywhere(func(l *lane.Lane, _ model.Time) { l.Hurry() })
}

// stopUnregistered ends an engine that has no lease when it is stopped. away is why it could not
// register. It is nil if no attempt has failed.
func (e *Engine) stopUnregistered(away error) error {
	if away == nil {
		return nil
	}
	err := error(fault.New(fault.Unavailable, "the node stopped while it could not register with the store: %w", away))
	e.failed.Store(&err)
	return err
}

// unstoredError is the error of a node that stopped although the store took nothing.
type unstoredError struct {
	unstored lane.Unstored
	cause    error
}

// Error says what is not stored, and why.
func (e *unstoredError) Error() string { return e.unstored.String() + ": " + e.cause.Error() }

// Unwrap returns the error of the store, so that its kind is the kind of this error.
func (e *unstoredError) Unwrap() error { return e.cause }

// gaveUpOnStore returns an error if the lanes of the incarnation have ended because the store took
// nothing while the node stopped. It returns nil if they ended for another reason.
func (inc *incarnation) gaveUpOnStore(cause error) error {
	if !errors.Is(cause, lane.ErrStoreAway) {
		return nil
	}
	var all lane.Unstored
	for _, s := range inc.lanes {
		all.Join(s.unstored)
	}
	return &unstoredError{unstored: all, cause: cause}
}
