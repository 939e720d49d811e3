package remote_test

import (
	"context"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// listener is a backend that notes the request ids of calls.
type listener struct {
	api.Backend

	mu  sync.Mutex
	ids []string
}

// Call notes the id of a call.
func (l *listener) Call(ctx context.Context, r api.CallRequest) (model.Payload, error) {
	l.mu.Lock()
	l.ids = append(l.ids, r.RequestID)
	l.mu.Unlock()
	return l.Backend.Call(ctx, r)
}

// If the caller of a request gives no request id, the client draws one at random. The drawn id
// names the era (a period in which clients draw ids) that the server has sent with an earlier
// answer. An id that the caller gives stays as it is.
func TestClientDrawsIDsInTheEraOfTheServer(t *testing.T) {
	t.Parallel()
	fund := perdure.NewEntity[int]("fund")
	perdure.NewOperation(fund, "deposit", func(_ perdure.EntityCtx, n *int, by int) (int, error) { *n += by; return *n, nil })
	l := &listener{}
	w := newWorldBehind(t, func(_ *world, b api.Backend) api.Backend { l.Backend = b; return l }, fund)
	for _, id := range []string{"", "", "mine", ""} {
		ok[model.Payload](w)(w.far.Call(w.ctx, api.CallRequest{Address: address("entity:fund", "k"), Name: "deposit", Input: text("1"), RequestID: id}))
	}

	eras := make([]string, len(l.ids))
	for i, id := range l.ids {
		eras[i] = model.EraOf(id)
	}
	if len(eras) != 4 || eras[0] != "" || eras[1] == "" || l.ids[2] != "mine" || eras[3] != eras[1] || l.ids[3] == l.ids[1] {
		t.Errorf("the ids are %q, want one without an era, one with an era, \"mine\", and another one with the same era", l.ids)
	}
}
