package perduretest

import (
	"context"
	"slices"
	"sync"

	"github.com/perdure/perdure/payload"
)

// outer calls functions outside of a bubble, where time is real. Transforms of payloads may use a
// network: virtual time must not pass while they wait for it, and their connections may live longer
// than the bubble. The channels are made outside of the bubble, so a goroutine of the bubble that
// waits for them does not let virtual time pass.
type outer struct {
	mu    sync.Mutex // one call at a time
	calls chan func()
	done  chan struct{}
	ctx   context.Context //nolint:containedctx // the context of the calls
}

// newOuter must be called outside of the bubble, and so must close.
func newOuter(ctx context.Context) *outer {
	o := &outer{calls: make(chan func()), done: make(chan struct{}), ctx: ctx}
	go func() {
		for call := range o.calls {
			call()
			o.done <- struct{}{}
		}
	}()
	return o
}

func (o *outer) close() { close(o.calls) }

// call calls a function, and panics if the function does.
func (o *outer) call(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var panicked any
	o.calls <- func() {
		defer func() { panicked = recover() }()
		do()
	}
	<-o.done
	if panicked != nil {
		panic(panicked)
	}
}

// maxOffloaded is the default limit of values of an app that offloads payloads.
const maxOffloaded = 64 << 20

// codec returns payload settings whose transforms run outside of the bubble.
func (o *outer) codec(c payload.Codec, maxPayload int) payload.Codec {
	// The transforms below do not show that they offload.
	offloads := slices.ContainsFunc(c.Chain, func(t payload.Transform) bool {
		_, ok := payload.Blobs(t)
		return ok
	})
	if offloads && c.MaxPlain == 0 {
		c.MaxPlain = max(maxPayload, maxOffloaded)
	}

	c.Chain, c.OldChain = o.transforms(c.Chain), o.transforms(c.OldChain)
	return c
}

func (o *outer) transforms(chain []payload.Transform) (all []payload.Transform) {
	for _, t := range chain {
		if t != nil { // the settings are checked later
			t = outerTransform{t, o}
		}
		all = append(all, t)
	}
	return all
}

// outerTransform is a transform that runs outside of the bubble. It does not use the contexts of
// its callers, because they belong to the bubble.
type outerTransform struct {
	payload.Transform

	o *outer
}

// Seal implements payload.Transform.
func (t outerTransform) Seal(_ context.Context, m payload.Meta, data []byte) (sealed []byte, applied bool, err error) {
	t.o.call(func() { sealed, applied, err = t.Transform.Seal(t.o.ctx, m, data) })
	return sealed, applied, err
}

// Open implements payload.Transform.
func (t outerTransform) Open(_ context.Context, m payload.Meta, sealed []byte) (data []byte, err error) {
	t.o.call(func() { data, err = t.Transform.Open(t.o.ctx, m, sealed) })
	return data, err
}

// Digester implements payload.Transform.
func (t outerTransform) Digester(context.Context) (digest func([]byte) []byte, err error) {
	t.o.call(func() { digest, err = t.Transform.Digester(t.o.ctx) })
	return digest, err
}
