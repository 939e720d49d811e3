package nats_test

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/notify/nats"
)

// road is a network between a hub and its server that can be blocked: connections stay open, and
// nothing arrives.
type road struct {
	t        *testing.T
	listener net.Listener
	to       string
	ended    sync.WaitGroup

	mu      sync.Mutex
	open    *sync.Cond
	blocked bool
	conns   []net.Conn
}

func newRoad(t *testing.T, to string) *road {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &road{t: t, listener: l, to: to}
	r.open = sync.NewCond(&r.mu)
	r.ended.Go(r.accept)
	t.Cleanup(func() {
		_ = l.Close()
		r.block(false)
		r.mu.Lock()
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		r.ended.Wait()
	})
	return r
}

func (r *road) accept() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", r.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, from, to)
		r.mu.Unlock()
		r.ended.Go(func() { r.carry(from, to) })
		r.ended.Go(func() { r.carry(to, from) })
	}
}

// carry passes bytes on while the road is open.
func (r *road) carry(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buf := make([]byte, 4<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		for r.blocked {
			r.open.Wait()
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (r *road) block(blocked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocked = blocked
	r.open.Broadcast()
}

func (r *road) url() string { return "nats://" + r.listener.Addr().String() }

// A connection over which nothing arrives any longer does not block a node. The node drops hints
// and changes, and tells subscribers how many changes it dropped. Everything works again when the
// network does.
func TestStalledConnection(t *testing.T) {
	t.Parallel()
	s := startServer(t, 0, nil)
	r := newRoad(t, s.Addr().String())
	a, b := openHub(t, r.url(), "one"), openHub(t, s.ClientURL(), "one")
	got := subscribe(t, s.ClientURL(), "perdure.changes.acme.>")
	eventually(t, "b hears a", func() { a.Publish(mail) }, func() bool { return b.has(mail) })

	r.block(true)
	for i := range 60_000 { // many times what the buffers of both ends hold
		a.Publish(notify.Hint{Kind: notify.Mail, Shard: model.ShardID(i % 4096)})
		a.Changed([]model.Change{completed("acme", strconv.Itoa(i))})
	}
	r.block(false)

	again := notify.Hint{Kind: notify.Mail, Shard: 9}
	eventually(t, "b hears a again", func() { a.Publish(again) }, func() bool { return b.has(again) })
	eventually(t, "subscribers learn what they have missed", func() { a.Changed([]model.Change{completed("acme", "x")}) }, func() bool {
		return got.has("perdure.changes.acme.missed") && got.has("perdure.changes.acme.execution.completed")
	})
}

// credentials returns the credentials of a user of an account.
func credentials(t *testing.T, account nkeys.KeyPair) []byte {
	t.Helper()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	signed, err := jwt.NewUserClaims(public).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.FormatUserConfig(signed, seed)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// newAccount creates an account of a NATS operator. It stores the account in known, where the
// server looks for accounts. If known is nil, the server does not know the account.
func newAccount(t *testing.T, operator nkeys.KeyPair, known *server.MemAccResolver) nkeys.KeyPair {
	t.Helper()
	account, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	public, err := account.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	signed, err := jwt.NewAccountClaims(public).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	if known != nil {
		if err := known.Store(public, signed); err != nil {
			t.Fatal(err)
		}
	}
	return account
}

// A hub presents the credentials of its file. It reads the file whenever it connects, so replaced
// credentials take effect without a restart.
func TestCredentialsFile(t *testing.T) {
	t.Parallel()
	operator, err := nkeys.CreateOperator()
	if err != nil {
		t.Fatal(err)
	}
	public, err := operator.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	known := &server.MemAccResolver{}
	account, stranger := newAccount(t, operator, known), newAccount(t, operator, nil)
	s := startServer(t, 0, func(o *server.Options) { o.TrustedKeys, o.AccountResolver = []string{public}, known })

	file := filepath.Join(t.TempDir(), "node.creds")
	write := func(text []byte) {
		t.Helper()
		next := file + ".next"
		if err := os.WriteFile(next, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
	}
	write(credentials(t, stranger))
	e := &ear{t: t, heard: map[notify.Hint]int{}}
	hub, err := nats.Open(nats.Config{URL: s.ClientURL(), Credentials: file, Cluster: "one", Log: slog.New(slog.NewTextHandler(e, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the server refuses a stranger", nil, func() bool { return e.logs("Authorization Violation") })
	write(credentials(t, account))
	eventually(t, "the hub connects", nil, func() bool { return e.logs("NATS works again") })
}
