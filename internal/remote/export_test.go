package remote

import (
	"context"
	"time"
)

// OpenBundles opens the stream for bundles now, without waiting for enough calls.
func (b *Backend) OpenBundles(ctx context.Context) error {
	for {
		b.shared.mu.Lock()
		b.shared.made = bundleFrom
		b.shared.mu.Unlock()
		if b.shared.streamFor() != nil {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// HasBundles reports whether calls of the backend share a stream at this moment.
func (b *Backend) HasBundles() bool {
	b.shared.mu.Lock()
	defer b.shared.mu.Unlock()
	return b.shared.stream != nil
}

// UsesBundles reports whether the next call would share the stream.
func (b *Backend) UsesBundles() bool {
	b.shared.mu.Lock()
	defer b.shared.mu.Unlock()
	return b.shared.stream != nil && !b.shared.stream.isOver()
}

// LeaveServer retires the stream, as the client does when it moves to another server.
func (b *Backend) LeaveServer() { b.shared.moveOn() }

// HasEra reports whether the server has named the era in which the client draws request ids.
func (b *Backend) HasEra() bool { return b.era.Load() != nil }
