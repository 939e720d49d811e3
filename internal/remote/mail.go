package remote

import (
	"context"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

var _ api.Mailer = (*Backend)(nil)

// Cluster returns the id of the server's store.
func (b *Backend) Cluster() string { return b.cluster }

// Search refuses the request, because a server does not show the values of all tenants to a client.
func (b *Backend) Search(context.Context, string, func([]byte) error) error {
	return fault.New(fault.Invalid, "only a program that has the store open can search it")
}

// RequestRetention returns how long the server remembers the request id of a message that it has
// accepted.
func (b *Backend) RequestRetention() time.Duration { return b.remembers }

// Reach returns nil if a server answers, its engine serves and its store answers.
func (b *Backend) Reach(ctx context.Context) error {
	_, err := b.server(ctx, &pb.ServerRequest{Reach: true})
	return err
}

// Compose validates a request as the server does and returns its message.
func (b *Backend) Compose(r api.Request) (model.Message, error) { return b.limits.Compose(r) }

// DeadLetters returns messages that were sent in transactions and that the engine refused.
func (b *Backend) DeadLetters(ctx context.Context, tenant string, after model.RunID, limit int) ([]api.DeadLetter, error) {
	if err := b.own(tenant); err != nil {
		return nil, err
	}
	return ask(b.client.DeadLetters, wire.ReadDeadLetterList).do(ctx, b, &pb.DeadLettersRequest{After: wire.Run(after), Limit: int64(limit)})
}

// Deliver sends a composed message. If a message without a request id may have reached the server,
// Deliver does not send it again.
func (b *Backend) Deliver(ctx context.Context, m *model.Message) error {
	if err := b.own(m.To.Tenant); err != nil {
		return err
	}
	request := &pb.DeliverRequest{Message: model.AppendMessage(nil, m)}
	if m.RequestID == "" {
		return tellOnce(ctx, b, b.client.Deliver, request)
	}
	return tell(ctx, b, b.client.Deliver, request)
}

// Inbox returns false, because transactions of this process are not in the database of the server's
// store.
func (b *Backend) Inbox() (api.Inbox, bool) { return api.Inbox{}, false }

// Hint does nothing, because there is no inbox that could have a message.
func (b *Backend) Hint(model.ShardID) {}
