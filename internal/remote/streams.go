package remote

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// Bounds of one message.
const (
	batchStarts = 2_000
	batchBytes  = 4 << 20
)

// Bounds of one call that starts many executions. The service has the same bounds, but it sees only
// one message at a time.
const (
	maxMany      = 100_000
	maxManyBytes = 64 << 20
)

// streamFunc is a method of the server with one request and many replies.
type streamFunc[M, R any] func(context.Context, *M, ...grpc.CallOption) (grpc.ServerStreamingClient[R], error)

// gather makes a call whose reply comes in parts. It repeats a call that breaks, because all of
// these calls only read.
func gather[M, R, Out any](ctx context.Context, b *Backend, call streamFunc[M, R], m *M, add func(*Out, *R) error) (out Out, err error) {
	err = b.attempt(ctx, false, func(ctx context.Context, opts ...grpc.CallOption) error {
		var zero Out
		out = zero
		stream, err := call(ctx, m, opts...)
		if err != nil {
			return unsendable(m, err)
		}

		for {
			part, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := add(&out, part); err != nil {
				return fault.New(fault.Internal, "read the reply of the server: %s", err.Error())
			}
		}
	})

	return out, err
}

// History returns a page of events.
func (b *Backend) History(ctx context.Context, r api.HistoryRequest) (api.HistoryPage, error) {
	if err := b.own(r.Target.Address.Tenant); err != nil {
		return api.HistoryPage{}, err
	}
	return gather(ctx, b, b.client.History, wire.HistoryRequest(r), func(page *api.HistoryPage, m *pb.HistoryPart) error {
		part, err := wire.ReadHistoryPart(b.tenant, m)
		page.Run, page.More, page.Events = part.Run, part.More, append(page.Events, part.Events...)
		return err
	})
}

// List returns a page of executions.
func (b *Backend) List(ctx context.Context, r api.ListRequest) (api.ListPage, error) {
	if err := b.own(r.Tenant); err != nil {
		return api.ListPage{}, err
	}
	return gather(ctx, b, b.client.List, wire.ListRequest(r), func(page *api.ListPage, m *pb.ListPage) error {
		part, err := wire.ReadListPage(b.tenant, m)
		page.Executions, page.Cursor = append(page.Executions, part.Executions...), part.Cursor
		return err
	})
}

// TaskLogs returns a page of log lines.
func (b *Backend) TaskLogs(ctx context.Context, r api.TaskLogsRequest) (api.TaskLogsPage, error) {
	if err := b.own(r.Address.Tenant); err != nil {
		return api.TaskLogsPage{}, err
	}
	return gather(ctx, b, b.client.TaskLogs, wire.TaskLogsRequest(r), func(page *api.TaskLogsPage, m *pb.TaskLogsPage) error {
		part, err := wire.ReadTaskLogsPage(b.tenant, m)
		part.Lines = append(page.Lines, part.Lines...)
		*page = part
		return err
	})
}

// TaskStream returns a page of streamed items.
func (b *Backend) TaskStream(ctx context.Context, r api.TaskStreamRequest) (api.TaskStreamPage, error) {
	if err := b.own(r.Address.Tenant); err != nil {
		return api.TaskStreamPage{}, err
	}
	return gather(ctx, b, b.client.TaskStream, wire.TaskStreamRequest(r), func(page *api.TaskStreamPage, m *pb.TaskStreamPage) error {
		part, err := wire.ReadTaskStreamPage(b.tenant, m)
		part.Items = append(page.Items, part.Items...)
		*page = part
		return err
	})
}

// StartMany starts many executions, in messages that the server accepts. If the first message
// fails, StartMany returns the error. If a later message fails, the replies to all requests that
// are left have the error, because earlier requests have started.
func (b *Backend) StartMany(ctx context.Context, rs []api.StartRequest) ([]api.StartedReply, error) {
	if err := checkMany(rs); err != nil {
		return nil, err
	}
	requests := make([]api.StartRequest, len(rs))
	for i, r := range rs {
		if err := b.own(r.Address.Tenant); err != nil {
			return nil, err
		}
		r.RequestID = requestID(r.RequestID)
		requests[i] = r
	}

	replies := make([]api.StartedReply, 0, len(rs))
	for len(requests) > 0 {
		n := batch(requests)
		part, err := ask(b.client.StartMany, wire.ReadStartManyReply).do(ctx, b, wire.StartManyRequest(requests[:n]))
		if err == nil && len(part) != n {
			err = fault.New(fault.Internal, "the server has answered %d of %d starts", len(part), n)
		}

		switch {
		case err == nil:
			replies, requests = append(replies, part...), requests[n:]
		case len(replies) == 0:
			return nil, err
		default:
			for range requests {
				replies = append(replies, api.StartedReply{Err: err})
			}
			return replies, nil
		}
	}
	return replies, nil
}

// checkMany checks the bounds of the service before anything is started.
func checkMany(rs []api.StartRequest) error {
	if len(rs) > maxMany {
		return fault.New(fault.Exhausted, "start %d executions in one call: at most %d are allowed", len(rs), maxMany)
	}
	size := 0
	for i := range rs {
		size += inputBytes(&rs[i])
	}
	if size > maxManyBytes {
		return fault.New(fault.Exhausted, "start %d executions in one call: their inputs have %d bytes, at most %d are allowed", len(rs), size, maxManyBytes)
	}
	return nil
}

// inputBytes returns the bytes of the input of a start and of its signals.
func inputBytes(r *api.StartRequest) int {
	n := r.Input.Size()
	for i := range r.With {
		n += r.With[i].Input.Size()
	}
	return n
}

// batch returns how many of the starts fit into one message. It is at least one if there are any.
func batch(rs []api.StartRequest) (n int) {
	for size := 0; n < len(rs) && n < batchStarts; n++ {
		size += 256 + inputBytes(&rs[n])
		if n > 0 && size > batchBytes {
			break
		}
	}
	return n
}

// Import stores a run of another store. Its events travel in parts.
func (b *Backend) Import(ctx context.Context, r api.ImportRequest) (reply api.PastReply, err error) {
	if err := b.own(r.Tenant, r.History.Start.Address.Tenant); err != nil {
		return reply, err
	}
	r.RequestID = requestID(r.RequestID)
	events := r.History.Events
	r.History.Events = nil

	var m *pb.PastReply
	err = b.attempt(ctx, false, func(ctx context.Context, opts ...grpc.CallOption) error {
		stream, err := b.client.Import(ctx, opts...)
		if err != nil {
			return err
		}

		// A send that fails returns io.EOF. The error of the server comes with the reply.
		first := wire.ImportRequest(r)
		err = unsendable(first, stream.Send(first))
		for rest := events; err == nil && len(rest) > 0; {
			n := eventBatch(rest)
			part := &pb.ImportRequest{Events: wire.HistoryEvents(rest[:n])}
			err, rest = unsendable(part, stream.Send(part)), rest[n:]
		}

		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		m, err = stream.CloseAndRecv()
		return err
	})
	if err != nil {
		return reply, err
	}
	return readReply(b, m, wire.ReadPastReply)
}

// eventBatch returns how many events fit into a message: at least one.
func eventBatch(events []model.Event) (n int) {
	for size := 0; n < len(events); n++ {
		if size += events[n].Size(); n > 0 && size > batchBytes {
			break
		}
	}
	return n
}
