package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// rowCatcher is a store that refuses requests, and keeps the last request.
type rowCatcher struct {
	store.Store
	row store.InboxRow
}

func (s *rowCatcher) PutInbox(_ context.Context, rows []store.InboxRow) error {
	s.row = rows[0]
	return store.Errorf(store.Refused, "put inbox", "caught")
}

// A request that was lost with a connection goes to the store under the same id. The stored request
// names the connection. After an owner has read the stored request, it looks up the id of every
// request that it still gets over that connection. A request without an id gets a new id, which no
// owner can have seen.
func TestStoredRequestNamesTheLostConnection(t *testing.T) {
	t.Parallel()
	st := &rowCatcher{Store: memory.New(memory.Options{})}
	eng := New(Config{Store: st})
	link := model.RunID{7}
	for id, want := range map[string]model.RunID{"mine": link, "": {}} {
		m := &model.Message{Kind: model.MessageSignal, To: model.Address{Tenant: "t", Type: "w", Key: "k"}, Name: "s", RequestID: id}
		_, err := eng.clerk.send(t.Context(), m, attempt{taken: true, link: link})
		if refused := (*store.Error)(nil); !errors.As(err, &refused) {
			t.Fatalf("the request ended with %v, want the refusal of the store", err)
		}
		if got := st.row.Message; got.Linked != want || got.RequestID == "" {
			t.Errorf("the request with id %q names connection %s and has id %q, want connection %s", id, got.Linked, got.RequestID, want)
		}
	}
}
