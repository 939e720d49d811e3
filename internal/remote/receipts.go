package remote

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

const (
	// When the client has this many receipts, it sends them immediately.
	receiptBatch = 256
	// The client keeps at most this many receipts. Without a receipt, the server forgets an answer
	// when it is old enough.
	receiptMost  = 10_000
	receiptPause = 500 * time.Millisecond // how long receipts wait for others
	receiptTime  = 5 * time.Second        // how long one attempt to send them may take
)

// receipts are the ids of requests whose answers the client has, or no longer waits for. The client
// has drawn these ids itself and sent each request once, so no copy of a request can arrive later.
// With a receipt, the server need not remember the answer any longer.
type receipts struct {
	send func(ctx context.Context, ids []string)

	mu      sync.Mutex
	ids     []string
	timer   *time.Timer // runs while there are ids
	closed  bool
	sending sync.WaitGroup
}

// add notes that the client has an answer.
func (r *receipts) add(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.ids) >= receiptMost {
		return
	}
	r.ids = append(r.ids, id)

	switch len(r.ids) {
	case 1:
		r.sending.Add(1)
		r.timer = time.AfterFunc(receiptPause, r.flush)
	case receiptBatch:
		if r.timer.Stop() {
			r.timer.Reset(0)
		}
	}
}

// flush sends the receipts. If a receipt is lost, the server keeps the row of the answer until it
// is old enough to be forgotten.
func (r *receipts) flush() {
	defer r.sending.Done()
	r.mu.Lock()
	ids := r.ids
	r.ids = nil
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), receiptTime)
	defer cancel()
	r.send(ctx, ids)
}

// close sends the last receipts.
func (r *receipts) close() {
	r.mu.Lock()
	r.closed = true
	early := len(r.ids) > 0 && r.timer.Stop()
	r.mu.Unlock()
	if early {
		r.flush()
	}
	r.sending.Wait()
}

// sendReceipts tells the server which answers the client has.
func (b *Backend) sendReceipts(ctx context.Context, ids []string) {
	_, _ = b.client.Server(ctx, &pb.ServerRequest{Received: ids}) // ignore the error, see flush
}

// askUnder makes a call under a request id: the one that the caller gave, or one that the client
// draws. After a call under a drawn id, the client sends a receipt, unless it has repeated the
// call.
func askUnder[M, R, Out any](ctx context.Context, b *Backend, v verb[M, R, Out], given string, request func(id string) *M) (Out, error) {
	if given != "" {
		return v.do(ctx, b, request(given))
	}

	id, tries, call := b.drawID(), 0, v.call
	var header metadata.MD
	v.call = func(ctx context.Context, m *M, opts ...grpc.CallOption) (*R, error) {
		tries++
		return call(ctx, m, append(opts, grpc.Header(&header))...)
	}
	out, err := v.do(ctx, b, request(id))
	b.readEra(header)
	if tries == 1 { // a copy of a repeated request may still be on its way
		b.receipts.add(id)
	}
	return out, err
}

// drawID returns a new request id, in the era that the server has named.
func (b *Backend) drawID() string {
	era := ""
	if told := b.era.Load(); told != nil {
		era = *told
	}
	return model.DrawnID(rand.Text(), era)
}

// readEra notes the era that the header of an answer names, if it names one.
func (b *Backend) readEra(header metadata.MD) {
	if eras := header[wire.EraHeader]; len(eras) == 1 && len(eras[0]) <= model.MaxEra {
		b.era.Store(&eras[0])
	}
}
