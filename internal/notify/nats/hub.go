package nats

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
)

// Bounds.
const (
	mostPayload    = 64 << 10 // bytes of a message with hints
	mostMessages   = 10_000   // messages that wait to be read; the library drops further ones
	mostBytes      = 4 << 20  // bytes of the messages that wait to be read
	gap            = time.Millisecond
	connectTimeout = 5 * time.Second
	writeTimeout   = 5 * time.Second
	closeTimeout   = 2 * time.Second
	pause          = 250 * time.Millisecond // between attempts to connect, plus a random time
)

// Hub is a notify.Hub on NATS. It also publishes changes.
type Hub struct {
	cfg     Config
	conn    *nats.Conn
	subject string // the subject of hints
	local   notify.Local
	sending *notify.Pending // hints of this node
	heard   *notify.Pending // hints of other nodes
	changes *backlog
	away    *episode.Source

	ctx    context.Context //nolint:containedctx // the context of its goroutines
	cancel context.CancelFunc
	wg     sync.WaitGroup
	closed chan struct{} // the connection has ended
}

var _ notify.Hub = (*Hub)(nil)

// Open starts a hub. It returns before the hub has connected. A hub that cannot connect drops hints
// and changes, and tries again. Close ends it.
func Open(c Config) (*Hub, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}

	h := &Hub{
		cfg: c, subject: c.Prefix + ".hints." + c.Cluster, sending: notify.NewPending(), heard: notify.NewPending(), changes: newBacklog(), closed: make(chan struct{}),
		away: episode.New(c.Log, "NATS cannot be reached; nodes wake each other through the database", "NATS works again").Source(),
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	conn, err := nats.Connect(c.URL, h.options()...)
	if err != nil {
		h.cancel()
		return nil, fault.New(fault.Invalid, "connect to NATS: %w", err)
	}
	h.conn = conn
	if err := h.listen(); err != nil {
		conn.Close()
		h.cancel()
		return nil, fault.New(fault.Internal, "subscribe to hints on NATS: %w", err)
	}

	h.wg.Go(h.send)
	h.wg.Go(h.pass)
	return h, nil
}

// options returns how to connect. The library never gives up. While it is not connected it keeps no
// messages, because an old hint has no value.
func (h *Hub) options() []nats.Option {
	options := []nats.Option{
		nats.Name("perdure"), nats.NoEcho(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.ReconnectBufSize(-1),
		nats.ReconnectWait(pause), nats.ReconnectJitter(pause, pause), nats.Timeout(connectTimeout), nats.FlusherTimeout(writeTimeout),
		nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ConnectHandler(func(*nats.Conn) { h.away.OK() }),
		nats.ReconnectHandler(func(*nats.Conn) {
			h.away.OK()
			// Hints were lost. This hint makes receivers look at the store for everything that they
			// may have missed.
			h.local.Publish(notify.Hint{Kind: notify.Membership})
			h.changes.add(nil) // wakes the sender, which tells subscribers what they have missed
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { h.fail(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { h.fail(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// A slow consumer has dropped hints. The node looks at the store anyway.
			if !errors.Is(err, nats.ErrSlowConsumer) {
				h.fail(err)
			}
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(h.closed) }),
	}

	if h.cfg.Credentials != "" {
		options = append(options, nats.UserCredentials(h.cfg.Credentials))
	}
	return options
}

// fail notes that NATS does not work.
func (h *Hub) fail(err error) {
	if err != nil && h.ctx.Err() == nil {
		h.away.Fail(err)
	}
}

// Close ends the hub and waits for its goroutines. It drops hints and changes that were not sent.
func (h *Hub) Close() error {
	h.cancel()
	h.wg.Wait()
	h.conn.Close()
	select {
	case <-h.closed:
		return nil
	case <-time.After(closeTimeout):
		return fault.New(fault.Unavailable, "the connection to NATS does not end")
	}
}

// Subscribe calls fn for every hint of another node. After a lost connection is restored, fn gets a
// hint of kind Membership.
func (h *Hub) Subscribe(fn func(notify.Hint)) func() { return h.local.Subscribe(fn) }

// Publish adds a hint to the hints that the hub sends next.
func (h *Hub) Publish(hint notify.Hint) { h.sending.Add(hint) }

// Changed publishes changes that are durable. It never blocks. If NATS is too slow, it drops
// changes, and tells subscribers how many.
func (h *Hub) Changed(changes []model.Change) { h.changes.add(changes) }

// listen receives the hints of other nodes. It combines the hints of a short time. So even a flood
// of garbage on the subject makes a node look at the store only at limited intervals.
func (h *Hub) listen() error {
	sub, err := h.conn.Subscribe(h.subject, func(m *nats.Msg) {
		if len(m.Data) > mostPayload {
			return
		}
		for _, hint := range notify.Decode(string(m.Data)) {
			h.heard.Add(hint)
		}
	})
	if err != nil {
		return err
	}
	return sub.SetPendingLimits(mostMessages, mostBytes)
}

// pass passes hints of other nodes to the subscribers until the hub is closed.
func (h *Hub) pass() {
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.heard.Wake():
		}
		for hint := range h.heard.Take() {
			h.local.Publish(hint)
		}
		h.sleep(gap)
	}
}

// send sends hints and changes until the hub is closed. Only this goroutine waits for a slow
// server.
func (h *Hub) send() {
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.sending.Wake():
		case <-h.changes.wake:
		}

		for _, payload := range notify.Encode(h.sending.Take(), mostPayload) {
			_ = h.conn.Publish(h.subject, []byte(payload)) // a hint may be lost
		}
		h.sendChanges()
		h.sleep(gap) // collect the hints of this time
	}
}

// sendChanges sends the changes that wait, and then says what was dropped.
func (h *Hub) sendChanges() {
	changes, missed := h.changes.take()
	for i := range changes {
		if !h.sendChange(&changes[i]) {
			h.changes.miss(changes[i].Address.Tenant, 1)
		}
	}
	for tenant, n := range missed {
		if !h.sendMissed(tenant, n) {
			h.changes.miss(tenant, n)
		}
	}
}

// sleep waits, or returns when the hub is closed.
func (h *Hub) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-h.ctx.Done():
	}
}
