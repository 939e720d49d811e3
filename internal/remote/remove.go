package remote

import (
	"context"

	"google.golang.org/grpc"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/wire"
)

// Delete removes an execution. A removal by force writes the rows of the execution to the writer of
// the request. The server removes nothing before the writer has taken all rows.
func (b *Backend) Delete(ctx context.Context, r api.DeleteRequest) (reply api.DeleteReply, err error) {
	if err := b.own(r.Target.Address.Tenant); err != nil {
		return reply, err
	}
	r.RequestID = requestID(r.RequestID)

	d := &removal{request: &r}
	err = b.attempt(ctx, false, func(inner context.Context, opts ...grpc.CallOption) error {
		err := d.run(inner, b.client, opts)
		if err != nil && d.written {
			// Another attempt would write the rows twice.
			why := explain(ctx, err)
			return fault.New(fault.KindOf(why), "remove %s: %s", r.Target.Address, why.Error())
		}
		return err
	})
	if err != nil {
		return reply, err
	}
	return readReply(b, d.reply, wire.ReadDeleteReply)
}

// removal is one removal under way.
type removal struct {
	request *api.DeleteRequest
	written bool // the writer has some rows
	reply   *pb.DeleteReply
}

// run makes one attempt.
func (d *removal) run(ctx context.Context, client pb.ClientServiceClient, opts []grpc.CallOption) error {
	stream, err := client.Delete(ctx, opts...)
	if err != nil {
		return err
	}
	request := wire.DeleteRequest(*d.request)
	if err := stream.Send(request); err != nil {
		if err := unsendable(request, err); fault.Is(err, fault.Invalid) {
			return err
		}
		_, err = stream.Recv() // returns the reason
		return err
	}

	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}

		switch part := m.GetPart().(type) {
		case *pb.DeletePart_Reply:
			d.reply = part.Reply
			return nil
		case *pb.DeletePart_Rows:
			if d.request.Export == nil {
				return fault.New(fault.Internal, "the server sent rows that the client did not ask for")
			}
			d.written = true
			if _, err := d.request.Export.Write(part.Rows); err != nil {
				return d.unsaved(err)
			}
		case *pb.DeletePart_AllRowsSent:
			if err := d.flush(); err != nil {
				return d.unsaved(err)
			}
			if err := stream.Send(&pb.DeleteRequest{RowsSaved: true}); err != nil {
				_, err = stream.Recv()
				return err
			}
		}
	}
}

// flush flushes a buffered writer.
func (d *removal) flush() error {
	if to, buffered := d.request.Export.(interface{ Flush() error }); buffered {
		return to.Flush()
	}
	return nil
}

// unsaved is the error of a writer. The attempt ends with this error, so that the server removes
// nothing.
func (d *removal) unsaved(err error) error {
	d.written = false // the error comes from this side, and needs no further explanation
	return fault.New(fault.Unavailable, "export of the rows of %s: %w", d.request.Target.Address, err)
}
