package engine

import (
	"context"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
)

// newGuest draws a name for a guest. Owners use the name to notify the guest of their answers.
func newGuest() model.NodeID { return model.NodeID(uuid.Must(uuid.NewV7())) }

// visit is the life of a guest. A guest does not register, owns no shards, and sends its requests
// to the owners through the store.
func (e *Engine) visit(ctx context.Context) error {
	if !e.cfg.Store.Info().Shared {
		return e.fail(fault.New(fault.Invalid, "a guest needs a store that nodes share, and only one process can open %s", e.cfg.Store.Info().URL))
	}
	unsubscribe := e.cfg.Hints.Subscribe(func(h notify.Hint) {
		if h.Kind == notify.Closed && h.Node == e.guest {
			e.clerk.lookout.LookNow()
		}
	})
	defer unsubscribe()
	e.isReady.Do(func() { close(e.ready) })
	<-ctx.Done()
	return nil
}
