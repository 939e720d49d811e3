package feed

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"sync"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of a page.
const (
	pageChanges = 256
	pageBytes   = 256 << 10
	// pageScan is how many changes a watcher looks at while it holds the lock. A watcher that finds
	// nothing in this many changes still gets a page, so that its cursor does not become too old.
	pageScan = 2_048
)

// ErrClosed says that the node has stopped.
var ErrClosed = fault.New(fault.Unavailable, "the node has stopped")

// Watcher reads the changes of a tenant. One goroutine at a time may use it.
type Watcher struct {
	hub    *Hub
	topic  *topic
	filter model.ChangeFilter
	next   int64 // the position to read next
	gap    bool  // changes were missed
	fresh  bool  // the watcher has had no page yet
	begins bool  // the watcher has no cursor of an earlier watch
	// partial is what the last page said about changes that the feed lacks.
	partial bool
	closing sync.Once
}

// Next waits for changes. The first page comes immediately, even if it has no changes. An error of
// kind Canceled or Timeout says that ctx has ended.
func (w *Watcher) Next(ctx context.Context) (model.ChangePage, error) {
	for {
		page, ok, news := w.look()
		if ok {
			return page, nil
		}
		select {
		case <-news:
		case <-w.hub.closed:
			return model.ChangePage{}, ErrClosed
		case <-ctx.Done():
			return model.ChangePage{}, fault.New(fault.KindOf(ctx.Err()), "watch: %w", context.Cause(ctx))
		}
	}
}

// look returns a page if there is one. Otherwise it returns a channel that is closed when the
// watcher should look again. Many watchers can look at the same time, so a publisher waits at most
// about as long as one look takes.
func (w *Watcher) look() (page model.ChangePage, ok bool, news <-chan struct{}) {
	h, t := w.hub, w.topic
	h.mu.RLock()
	defer h.mu.RUnlock()
	if w.next < t.first {
		// A caller that has had no page yet reads its lists after the first page anyway.
		w.gap = !w.fresh || !w.begins
		w.next = t.next
	}
	if w.gap {
		w.next = t.next // the caller reads its lists again, which contain all earlier changes
	}

	begin, bytes := w.next, 0
	for w.next < t.next && len(page.Changes) < pageChanges && bytes < pageBytes && w.next-begin < pageScan {
		c := t.at(w.next)
		w.next++
		if w.filter.Matches(c) {
			page.Changes = append(page.Changes, *c)
			bytes += c.Size()
		}
	}

	page.Gap, page.Partial = w.gap, h.origins.lacks(t.tenant)
	if len(page.Changes) == 0 && !page.Gap && !w.fresh && page.Partial == w.partial && w.next-begin < pageScan {
		return page, false, t.rung
	}
	w.fresh, w.gap, w.partial = false, false, page.Partial
	page.Cursor = cursor{t.id, w.next}.String()
	return page, true, nil
}

// Close ends the watch. The caller may call it again.
func (w *Watcher) Close() { w.closing.Do(func() { w.hub.leave(w.topic) }) }

// cursor is a place in the changes of a tenant.
type cursor struct {
	topic uint64
	next  int64
}

// String returns the cursor for callers.
func (c cursor) String() string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, cursorBytes), c.topic)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(b, uint64(c.next)))
}

const cursorBytes = 16

func parseCursor(s string) (c cursor, err error) {
	if s == "" {
		return c, nil
	}
	if len(s) == base64.RawURLEncoding.EncodedLen(cursorBytes) {
		if b, err := base64.RawURLEncoding.DecodeString(s); err == nil && len(b) == cursorBytes {
			return cursor{binary.BigEndian.Uint64(b), int64(binary.BigEndian.Uint64(b[8:]))}, nil
		}
	}
	return c, fault.New(fault.Invalid, "watch: %.40q is not a cursor of changes", s)
}
