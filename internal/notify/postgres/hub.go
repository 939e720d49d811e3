// Package postgres carries hints with LISTEN and NOTIFY, so that nodes on one database need nothing
// else to wake each other.
//
// Hints have their own connections and are never part of a transaction of the store, because in
// PostgreSQL all transactions that notify wait for one shared lock. The hub combines hints: it
// drops duplicates, sends the hints of a few milliseconds together, and sends nothing when there
// are no hints. It restores a lost connection after a growing pause. After that, it passes on one
// hint of kind Membership, which makes its node look at the store for everything that it may have
// missed.
//
// A hub changes no setting of its sessions and sends no startup parameter except its name, so it
// works behind a pooler that keeps a server connection for each client. Behind a pooler that shares
// server connections between transactions, LISTEN does not work, although the server returns no
// error. The hub detects this before it listens, logs it once, and tries again from time to time.
// It still sends hints, for nodes that reach the server directly.
package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/pooler"
)

// Config configures a hub. URL is required.
type Config struct {
	// URL is the connection string of the store. The hub ignores parameters of the store, except
	// for schema.
	URL string
	// Schema is the schema of the store. Nodes of different stores in one database do not receive
	// each other's hints. Default "perdure".
	Schema string
	// Gap is how long the hub waits after it has sent hints. It sends the hints of that time
	// together. Default 3 ms.
	Gap time.Duration
	// Log gets a line when hints start to fail, at most one per minute while they fail, and one
	// when they work again. Default: none.
	Log *slog.Logger
	// The hub calls Changed, if it is set, with nil when it has started to listen, and with the
	// error when it cannot listen or has lost the connection. It makes one call at a time. Changed
	// must not block.
	Changed func(err error)
}

// Bounds.
const (
	mostPayload    = 7900 // bytes; PostgreSQL takes a little more
	connectTimeout = 5 * time.Second
	sendTimeout    = 5 * time.Second
	probeTimeout   = 2 * time.Second
	firstPause     = 50 * time.Millisecond
	longestPause   = 5 * time.Second
	deafPause      = time.Minute
)

// errLate says that a notification did not arrive in time, although no pooler is known to lose it.
var errLate = fmt.Errorf("a notification of this process did not arrive within %s: the database, or a connection pooler in front of it, is overloaded", probeTimeout)

var errDeaf = errors.New("a connection pooler shares server connections between transactions, so notifications cannot be received; use session mode")

// Hub is a notify.Hub on PostgreSQL.
type Hub struct {
	cfg     Config
	conn    *pgx.ConnConfig
	channel string
	local   notify.Local

	ctx    context.Context //nolint:containedctx // the context of its two goroutines
	cancel context.CancelFunc
	wg     sync.WaitGroup

	pending *notify.Pending

	changed sync.Mutex    // held during Config.Changed
	own     atomic.Uint32 // the server process that sends our hints

	sending, listening *episode.Source
}

var _ notify.Hub = (*Hub)(nil)

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// Open starts a hub. It returns before the hub has connected. A hub that cannot connect tries
// again, keeps a bounded number of hints until it can send them, and drops the others. Close ends
// the hub.
func Open(c Config) (*Hub, error) {
	conn, err := pgx.ParseConfig(c.URL)
	if err != nil { // the driver's text might quote the URL, which holds a password
		return nil, errors.New("the URL of the PostgreSQL store cannot be read; it should look like postgres://user:password@host:port/database")
	}

	// Remove the parameters of the store, which the server does not know.
	for _, name := range []string{"schema", "shards", "pool", "prepare"} {
		if v := conn.RuntimeParams[name]; name == "schema" && v != "" {
			c.Schema = v
		}
		delete(conn.RuntimeParams, name)
	}

	if c.Schema == "" {
		c.Schema = "perdure"
	}
	if !schemaName.MatchString(c.Schema) {
		return nil, fmt.Errorf("schema %q must have at most 48 lower-case letters, digits and _, and must not begin with a digit", c.Schema)
	}
	if c.Gap == 0 {
		c.Gap = 3 * time.Millisecond
	}
	conn.ConnectTimeout = connectTimeout
	conn.RuntimeParams["application_name"] = "perdure hints"
	conn.DefaultQueryExecMode = pgx.QueryExecModeExec
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}
	conn.DialFunc = dialer.DialContext
	h := &Hub{
		cfg: c, conn: conn, channel: "perdure_hint_" + c.Schema, pending: notify.NewPending(),
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	log := episode.New(c.Log, "hints between nodes fail; nodes find new messages by polling", "hints between nodes work again")
	h.sending, h.listening = log.Source("direction", "send"), log.Source("direction", "receive")
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.wg.Go(h.listen)
	h.wg.Go(h.send)

	return h, nil
}

// Close ends the hub and waits for its goroutines. It drops hints that were not sent.
func (h *Hub) Close() error {
	h.cancel()
	h.wg.Wait()
	return nil
}

// Subscribe calls fn for every hint of another node. After a lost connection is restored, fn gets a
// hint of kind Membership: it makes the receiver look at the store for everything that it may have
// missed.
func (h *Hub) Subscribe(fn func(notify.Hint)) func() { return h.local.Subscribe(fn) }

// Publish adds a hint to the hints that the hub sends next.
func (h *Hub) Publish(hint notify.Hint) { h.pending.Add(hint) }

// sendHint is the statement that sends a hint. A hint need not survive a crash, so its transaction
// does not wait for the disk. The setting ends with that transaction, because a pooler may then
// give the session to a client whose commits must survive.
const sendHint = `select set_config('synchronous_commit', 'off', true), pg_notify($1, $2)`

// sender holds the connection that sends hints. Conn is nil before the first hint and after a
// failure.
type sender struct {
	*pgx.Conn
	send string // the name of the prepared statement, or its text
}

// send sends hints until the hub is closed.
func (h *Hub) send() {
	var conn sender
	defer func() { h.drop(conn.Conn) }()
	pause := firstPause
	for h.ctx.Err() == nil {
		select {
		case <-h.ctx.Done():
			return
		case <-h.pending.Wake():
		}

		hints := h.pending.Take()
		err := h.deliver(&conn, notify.Encode(hints, mostPayload))
		if err == nil {
			h.sending.OK()
			pause = firstPause
			h.sleep(h.cfg.Gap) // more hints arrive, and the next message has them all
			continue
		}

		if h.ctx.Err() == nil {
			h.sending.Fail(err)
		}
		h.drop(conn.Conn)
		conn.Conn = nil
		for hint := range hints {
			h.Publish(hint)
		}
		pause = h.backOff(pause)
	}
}

// deliver sends payloads, each with its own notification.
func (h *Hub) deliver(conn *sender, payloads []string) (err error) {
	ctx, cancel := context.WithTimeout(h.ctx, sendTimeout)
	defer cancel()
	if conn.Conn == nil {
		if err := h.connect(ctx, conn); err != nil {
			return err
		}
	}
	for _, payload := range payloads {
		if _, err = conn.Exec(ctx, conn.send, h.channel, payload); err != nil {
			return err
		}
	}
	return nil
}

// connect connects the sender. It prepares the statement only on a direct connection. A pooler
// could send the name of the statement to a server process that does not know it.
func (h *Hub) connect(ctx context.Context, to *sender) (err error) {
	if to.Conn, err = pgx.ConnectConfig(ctx, h.conn); err != nil {
		return err
	}
	own, err := pooler.Backend(ctx, to.PgConn())
	if err != nil {
		return err
	}
	h.own.Store(own)
	if to.send = sendHint; own == to.PgConn().PID() {
		to.send = "perdure_hint"
		_, err = to.Prepare(ctx, to.send, sendHint)
	}
	return err
}

// listen passes on hints of other nodes until the hub is closed.
func (h *Hub) listen() {
	pause, deaf := firstPause, false
	for first := true; h.ctx.Err() == nil; first = false {
		started := time.Now()
		err := h.listenOnce(first)
		if h.ctx.Err() != nil {
			return
		}
		if !deaf || !errors.Is(err, errDeaf) { // the pooler does not change, so log it once
			h.listening.Fail(err)
		}
		deaf = errors.Is(err, errDeaf)
		h.report(err)

		switch {
		case deaf:
			h.sleep(deafPause)
		case time.Since(started) > longestPause:
			pause = firstPause
			fallthrough
		default:
			pause = h.backOff(pause)
		}
	}
}

// listenOnce listens until the connection is lost.
func (h *Hub) listenOnce(first bool) error {
	conn, err := pgx.ConnectConfig(h.ctx, h.conn)
	if err != nil {
		return err
	}
	defer h.drop(conn)
	backend, err := h.subscribe(conn)
	if err != nil {
		return err
	}

	h.listening.OK()
	h.report(nil)
	if !first {
		h.local.Publish(notify.Hint{Kind: notify.Membership})
	}
	for {
		n, err := conn.WaitForNotification(h.ctx)
		if err != nil {
			return err
		}
		if n.PID != h.own.Load() && n.PID != backend {
			for _, hint := range notify.Decode(n.Payload) {
				h.local.Publish(hint)
			}
		}
	}
}

// subscribe starts to listen and checks that notifications arrive. It returns the server process
// that serves the connection.
//
// Behind a pooler, subscribe needs a second connection for a moment, for two steps. The first step
// compares the two connections, to find out whether the pooler shares server connections. It comes
// before LISTEN, because LISTEN would stay in effect on a shared connection. The second step sends
// a notification from the second connection to the first. A notification that a connection sends to
// itself would prove nothing about the pooler, because it arrives with the answer to its own
// statement.
func (h *Hub) subscribe(conn *pgx.Conn) (backend uint32, err error) {
	// A pooler without a free server connection keeps clients waiting.
	ctx, cancel := context.WithTimeout(h.ctx, connectTimeout)
	defer cancel()
	if backend, err = pooler.Backend(ctx, conn.PgConn()); err != nil {
		return 0, err
	}
	sender := conn

	if backend != conn.PgConn().PID() {
		if sender, err = pgx.ConnectConfig(ctx, h.conn); err != nil {
			return 0, err
		}
		defer h.drop(sender)
		switch err := pooler.Check(ctx, conn.PgConn(), sender.PgConn()); {
		case errors.Is(err, pooler.ErrShared):
			return 0, errDeaf
		case err != nil:
			return 0, err
		}
	}

	if _, err = conn.Exec(ctx, "listen "+pgx.Identifier{h.channel}.Sanitize()); err != nil {
		return 0, err
	}
	return backend, h.probe(ctx, conn, sender)
}

// probe sends a greeting over sender and waits until it arrives on conn. Without a pooler, both are
// the same connection.
func (h *Hub) probe(ctx context.Context, conn, sender *pgx.Conn) error {
	greeting := "p" + rand.Text()
	if _, err := sender.Exec(ctx, `select pg_notify($1, $2)`, h.channel, greeting); err != nil {
		return err
	}
	waits, cancel := context.WithTimeout(h.ctx, probeTimeout)
	defer cancel()

	for {
		n, err := conn.WaitForNotification(waits)
		switch {
		case waits.Err() != nil && h.ctx.Err() == nil:
			return whyUnheard(ctx, conn, sender)
		case err != nil:
			return err
		case n.Payload == greeting:
			return nil
		}
		for _, hint := range notify.Decode(n.Payload) {
			h.local.Publish(hint)
		}
	}
}

// whyUnheard says why a greeting has not arrived. Either a pooler, which subscribe has not
// detected, shares server connections and has lost the greeting, or an overloaded server delivers
// it late.
func whyUnheard(ctx context.Context, conn, sender *pgx.Conn) error {
	if sender != conn && errors.Is(pooler.Check(ctx, conn.PgConn(), sender.PgConn()), pooler.ErrShared) {
		return errDeaf
	}
	return errLate
}

func (h *Hub) report(err error) {
	if h.cfg.Changed != nil {
		h.changed.Lock()
		defer h.changed.Unlock()
		h.cfg.Changed(err)
	}
}

// drop closes a connection.
func (h *Hub) drop(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // an error does not matter
	<-conn.PgConn().CleanupDone()
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

// backOff pauses for about the given time and returns the next pause. The time is up to half longer
// or shorter, so that nodes do not all come back at the same time.
func (h *Hub) backOff(pause time.Duration) time.Duration {
	h.sleep(pause/2 + time.Duration(mathrand.Int64N(int64(pause))))
	return time.Duration(math.Min(float64(2*pause), float64(longestPause)))
}
