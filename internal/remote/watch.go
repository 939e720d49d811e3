package remote

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/wire"
)

// Watch calls take with pages of changes. After a broken stream it continues after the last page
// that take got. If the server cannot continue there, because it is another server or was
// restarted, the next page says that changes were missed.
func (b *Backend) Watch(ctx context.Context, r api.WatchRequest, take func(api.ChangePage) error) error {
	if err := b.own(r.Tenant); err != nil {
		return err
	}

	w := watch{b: b, r: r, take: take}
	for {
		if err := b.attempt(ctx, false, w.follow); err != nil {
			return err
		}
		if w.stopped != nil {
			return w.stopped
		}
		// A stream that has delivered pages has broken. The outage starts now.
		select {
		case <-time.After(jitter(firstPause)):
		case <-ctx.Done():
			return fault.New(fault.KindOf(ctx.Err()), "watch: %w", context.Cause(ctx))
		}
	}
}

// watch is one watch. It opens another stream whenever one breaks.
type watch struct {
	b       *Backend
	r       api.WatchRequest // the request, with the cursor of the last page
	take    func(api.ChangePage) error
	stopped error // what take has returned
}

// follow reads one stream. It returns nil when take has ended the watch, and when the stream breaks
// after at least one page.
func (w *watch) follow(ctx context.Context, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithCancel(ctx) // take may end the watch
	defer cancel()
	m := wire.WatchRequest(w.r)
	stream, err := w.b.client.Watch(ctx, m, opts...)
	if err != nil {
		return unsendable(m, err)
	}

	for had := false; ; had = true {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) { // a healthy server ends a watch with an error
			err = status.Error(codes.Unavailable, "the server has ended the watch")
		}
		switch {
		case err != nil && had && unreachable(err):
			return nil
		case err != nil:
			return err
		}

		page, err := readReply(w.b, part, wire.ReadChangePage)
		if err != nil {
			return err
		}
		if w.stopped = w.take(page); w.stopped != nil {
			return nil
		}
		w.r.Cursor = page.Cursor
	}
}
