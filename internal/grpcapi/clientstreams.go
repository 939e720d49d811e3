package grpcapi

import (
	"errors"
	"io"

	"google.golang.org/grpc"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// partBytes is the approximate size of a part of a stream.
const partBytes = 1 << 20

// maxImport bounds the bytes of an imported history in memory. The limit of the service is far
// lower. The service refuses a history between the two limits with its own error.
const maxImport = 128 << 20

// History sends one page of events. If the request asks for all, it sends all further pages too.
func (c *client) History(m *pb.HistoryRequest, stream grpc.ServerStreamingServer[pb.HistoryPart]) error {
	ctx := stream.Context()
	r, err := wire.ReadHistoryRequest(tenantOf(ctx), m)
	if err != nil {
		return err
	}

	for {
		page, err := c.backend.History(ctx, r)
		if err != nil {
			return err
		}
		if err := sendHistory(stream, page); err != nil {
			return err
		}
		if !m.GetAll() || !page.More || len(page.Events) == 0 {
			return nil
		}
		// Later pages are of the same run, even if the key has a new run by then.
		r.Target.Run, r.After = page.Run, page.Events[len(page.Events)-1].Seq
	}
}

// sendHistory sends a page in parts, because payloads may make it larger than a message.
func sendHistory(stream grpc.ServerStreamingServer[pb.HistoryPart], page api.HistoryPage) error {
	events := page.Events
	for {
		n := prefix(events, func(e *model.Event) int { return e.Size() })
		part := api.HistoryPage{Run: page.Run, Events: events[:n], More: page.More || n < len(events)}
		if err := stream.Send(wire.HistoryPart(part)); err != nil {
			return err
		}
		if events = events[n:]; len(events) == 0 {
			return nil
		}
	}
}

// prefix returns how many items fit into a part. It is at least one if there are any items.
func prefix[T any](items []T, size func(*T) int) (n int) {
	for total := 0; n < len(items); n++ {
		if total += size(&items[n]); n > 0 && total > partBytes {
			break
		}
	}
	return n
}

// List sends one page of executions. If the request asks for all, it sends all further pages too.
func (c *client) List(m *pb.ListRequest, stream grpc.ServerStreamingServer[pb.ListPage]) error {
	ctx := stream.Context()
	r, err := wire.ReadListRequest(tenantOf(ctx), m)
	if err != nil {
		return err
	}

	for {
		page, err := c.backend.List(ctx, r)
		if err != nil {
			return err
		}
		if err := stream.Send(wire.ListPage(page)); err != nil {
			return err
		}
		if !m.GetAll() || page.Cursor == "" {
			return nil
		}
		r.Cursor = page.Cursor
	}
}

// TaskLogs sends a page of log lines, or follows a task.
func (c *client) TaskLogs(m *pb.TaskLogsRequest, stream grpc.ServerStreamingServer[pb.TaskLogsPage]) error {
	ctx := stream.Context()
	r, err := wire.ReadTaskLogsRequest(tenantOf(ctx), m)
	if err != nil {
		return err
	}
	r.Wait = r.Wait || m.GetFollow()

	for {
		page, err := c.backend.TaskLogs(ctx, r)
		if err != nil {
			return err
		}
		if err := stream.Send(wire.TaskLogsPage(page)); err != nil {
			return err
		}
		if !m.GetFollow() || page.Ended {
			return nil
		}
		r.Run, r.After = page.Run, page.Cursor
	}
}

// TaskStream sends a page of streamed items, or follows a task.
func (c *client) TaskStream(m *pb.TaskStreamRequest, stream grpc.ServerStreamingServer[pb.TaskStreamPage]) error {
	ctx := stream.Context()
	r, err := wire.ReadTaskStreamRequest(tenantOf(ctx), m)
	if err != nil {
		return err
	}
	r.Wait = r.Wait || m.GetFollow()

	for {
		page, err := c.backend.TaskStream(ctx, r)
		if err != nil {
			return err
		}
		if err := sendItems(stream, page); err != nil {
			return err
		}
		if !m.GetFollow() || page.Ended {
			return nil
		}
		r.Run = page.Run
		if n := len(page.Items); n > 0 {
			r.After = page.Items[n-1].Position
		}
	}
}

// sendItems sends a page in parts.
func sendItems(stream grpc.ServerStreamingServer[pb.TaskStreamPage], page api.TaskStreamPage) error {
	items := page.Items
	for {
		n := prefix(items, func(i *model.StreamItem) int { return 64 + i.Value.Size() })
		part := api.TaskStreamPage{Run: page.Run, Items: items[:n], Ended: page.Ended && n == len(items)}
		if err := stream.Send(wire.TaskStreamPage(part)); err != nil {
			return err
		}
		if items = items[n:]; len(items) == 0 {
			return nil
		}
	}
}

// Watch sends the changes of the tenant until the client ends the call. A client that reads slowly
// delays only its own stream. If that client misses changes, the feed tells it so.
func (c *client) Watch(m *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.ChangePage]) error {
	ctx := stream.Context()
	r, err := wire.ReadWatchRequest(tenantOf(ctx), m)
	if err != nil {
		return err
	}
	return c.backend.Watch(ctx, r, func(page api.ChangePage) error { return stream.Send(wire.ChangePage(page)) })
}

// Import collects the parts of a history and imports it.
func (c *client) Import(stream grpc.ClientStreamingServer[pb.ImportRequest, pb.PastReply]) error {
	ctx := stream.Context()
	tenant := tenantOf(ctx)
	first, err := stream.Recv()
	if err != nil {
		return noRequest(err)
	}
	r, err := wire.ReadImportRequest(tenant, first)
	if err != nil {
		return err
	}

	for size := 0; ; {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}

		events, err := wire.ReadHistoryEvents(tenant, part.GetEvents())
		if err != nil {
			return err
		}
		for i := range events {
			size += events[i].Size()
		}
		if size > maxImport {
			return fault.New(fault.Exhausted, "import of %s: its events have more than %d bytes", r.History.Start.Address, maxImport)
		}

		r.History.Events = append(r.History.Events, events...)
	}

	reply, err := c.backend.Import(ctx, r)
	if err != nil {
		return err
	}
	return stream.SendAndClose(wire.PastReply(reply))
}

// noRequest is the error of a client that has sent no request.
func noRequest(err error) error {
	if errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "the stream has no request")
	}
	return err
}

// Delete removes an execution. If the client asks for the rows, Delete exports them first.
func (c *client) Delete(stream grpc.BidiStreamingServer[pb.DeleteRequest, pb.DeletePart]) error {
	ctx := stream.Context()
	m, err := stream.Recv()
	if err != nil {
		return noRequest(err)
	}
	r, err := wire.ReadDeleteRequest(tenantOf(ctx), m)
	if err != nil {
		return err
	}

	if m.GetExport() {
		r.Export = &rowWriter{stream: stream}
	}
	reply, err := c.backend.Delete(ctx, r)
	if err != nil {
		return err
	}

	return stream.Send(&pb.DeletePart{Part: &pb.DeletePart_Reply{Reply: wire.DeleteReply(reply)}})
}

// rowWriter sends exported rows to the client. The service flushes the writer before it removes
// anything.
type rowWriter struct {
	stream grpc.BidiStreamingServer[pb.DeleteRequest, pb.DeletePart]
	buffer []byte
}

// Write sends bytes once there are enough of them.
func (w *rowWriter) Write(p []byte) (int, error) {
	w.buffer = append(w.buffer, p...)
	if len(w.buffer) < partBytes {
		return len(p), nil
	}
	return len(p), w.send()
}

// send sends what is buffered, in messages that every client accepts.
func (w *rowWriter) send() error {
	for len(w.buffer) > 0 {
		n := min(len(w.buffer), partBytes)
		if err := w.stream.Send(&pb.DeletePart{Part: &pb.DeletePart_Rows{Rows: w.buffer[:n]}}); err != nil {
			return err
		}
		w.buffer = w.buffer[n:]
	}
	w.buffer = nil // the stream may still hold the sent bytes
	return nil
}

// Flush returns when the client has saved everything. If it returns an error, the service removes
// nothing.
func (w *rowWriter) Flush() error {
	if err := w.send(); err != nil {
		return err
	}
	if err := w.stream.Send(&pb.DeletePart{Part: &pb.DeletePart_AllRowsSent{AllRowsSent: true}}); err != nil {
		return err
	}
	answer, err := w.stream.Recv()

	switch {
	case errors.Is(err, io.EOF):
		return fault.New(fault.Canceled, "the client has not saved the rows")
	case err != nil:
		return err
	case !answer.GetRowsSaved():
		return fault.New(fault.Invalid, "the client has not said that it has saved the rows")
	}

	return nil
}
