package lane

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// acknowledgements collects the remembered answers that the lane can remove. A remembered answer is
// a row: if a client repeats a request, it gets the same answer again.
//
// The engine draws an id for a request whose client gave none (model.Message.Drawn). Only the call
// that drew the id can send the request again, and it does so only when it gets ErrNotOwner instead
// of an answer. So the row is useful only until the caller has the answer. The lane notes each
// answer that it gives to such a caller and removes the row with its next batch, so the removal
// costs no commit of its own. If the caller did not get its answer, because the shard moved or the
// lane died, the row stays as long as the rows of other requests.
type acknowledgements struct {
	keys  []store.RequestKey
	spare []store.RequestKey // memory of an earlier batch
	tidy  bool               // remove the answers even if there is nothing else to commit
}

// add notes that the caller of a request has its answer.
func (a *acknowledgements) add(e *entry, id string) {
	a.keys = append(a.keys, store.RequestKey{Shard: e.shard.id, Address: e.address, ID: id})
}

// reuse keeps the memory of a batch that is finished.
func (a *acknowledgements) reuse(keys []store.RequestKey) {
	if cap(keys) > 0 && a.spare == nil {
		clear(keys)
		a.spare = keys[:0]
	}
}

// isDrawn reports whether only the caller knows the request id of a message.
func isDrawn(m *model.Message) bool { return m.Drawn && m.RequestID != "" }
