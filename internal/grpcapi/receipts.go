package grpcapi

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// maxReceipts bounds the list of answers that clients may still confirm. When the list is full, the
// server drops its oldest entry. The answer of a dropped entry stays in the store until the engine
// removes it by age.
const maxReceipts = 50_000

// receipts are the answers to requests whose ids the client library has generated (see
// model.DrawnID). A client that has received an answer says so (ServerRequest.received). After that
// no client sends the request again, so the server removes the remembered answer from the store.
type receipts struct {
	mu     sync.Mutex
	forget map[receipt]func()
	order  []receipt // in the order of arrival; may name receipts that are gone
}

// receipt identifies a request of a client.
type receipt struct{ tenant, id string }

func newReceipts() *receipts { return &receipts{forget: map[receipt]func(){}} }

// add keeps the function that removes an answer.
func (r *receipts) add(of receipt, forget func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forget[of] == nil {
		r.order = append(r.order, of)
	}
	r.forget[of] = forget

	for len(r.order) > maxReceipts {
		delete(r.forget, r.order[0])
		r.order = r.order[1:]
	}
}

// confirm removes the answers that a client has received.
func (r *receipts) confirm(tenant string, ids []string) {
	for _, id := range ids {
		of := receipt{tenant, id}
		r.mu.Lock()
		forget := r.forget[of]
		delete(r.forget, of)
		r.mu.Unlock()
		if forget != nil {
			forget()
		}
	}
}

// withReceipt makes a call. If the client library has generated the request id, the server keeps
// the function that removes the answer, and tells the client the current era. An era is a period in
// which clients generate ids. The client puts the name of the era into the ids that it generates
// next.
func withReceipt[R any](ctx context.Context, c *client, id string, call func(context.Context) (R, error)) (R, error) {
	if !model.IsDrawnID(id) {
		return call(ctx)
	}

	var r model.Receipt
	reply, err := call(model.WithReceipt(ctx, &r))
	if r.Forget != nil {
		c.receipts.add(receipt{tenantOf(ctx), id}, r.Forget)
	}
	if r.Era != "" && r.Era != model.EraOf(id) {
		// Ignore the error. Without the header, the server has to look up the next ids of the
		// client in the store.
		_ = grpc.SetHeader(ctx, metadata.Pairs(wire.EraHeader, r.Era))
	}
	return reply, err
}
