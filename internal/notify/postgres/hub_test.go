package postgres_test

import (
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/notify/postgres"
	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// ear has a hub, and records the hints that the hub receives and the states that it reports.
type ear struct {
	*testing.T
	hub *postgres.Hub

	mu     sync.Mutex
	heard  []notify.Hint
	states []error
}

func open(t *testing.T, c postgres.Config) *ear {
	t.Helper()
	e := &ear{T: t}
	c.Changed = func(err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.states = append(e.states, err)
	}

	var err error
	if e.hub, err = postgres.Open(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.hub.Close() })

	e.hub.Subscribe(func(h notify.Hint) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.heard = append(e.heard, h)
	})

	return e
}

// waitConnected waits until the hub has connected n times.
func (e *ear) waitConnected(n int) *ear {
	e.Helper()
	e.eventually("the connection", func() bool {
		times := 0
		for _, err := range e.states {
			if err == nil {
				times++
			}
		}
		return times >= n
	})
	return e
}

// expectHint waits for a hint.
func (e *ear) expectHint(h notify.Hint) {
	e.Helper()
	e.eventually("a hint", func() bool { return slices.Contains(e.heard, h) })
}

func (e *ear) eventually(what string, done func() bool) {
	e.Helper()
	check := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return done()
	}
	for end := time.Now().Add(2 * time.Minute); !check(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			e.Fatalf("waited too long for %s: heard %v, states %v", what, e.heard, e.states)
		}
	}
}

func mail(shard int) notify.Hint {
	return notify.Hint{Kind: notify.Mail, Shard: model.ShardID(shard)}
}

func TestHints(t *testing.T) {
	t.Parallel()
	c := postgres.Config{URL: pgtest.URL(t)}
	a, b, other := open(t, c).waitConnected(1), open(t, c).waitConnected(1), open(t, postgres.Config{URL: c.URL, Schema: "elsewhere"}).waitConnected(1)
	hints := []notify.Hint{mail(3), {Kind: notify.Closed, Node: model.NodeID{1, 2, 3}}, {Kind: notify.Membership}}
	for _, h := range hints {
		a.hub.Publish(h)
	}
	for _, h := range hints {
		b.expectHint(h)
	}
	b.hub.Publish(mail(9))
	a.expectHint(mail(9))
	// PostgreSQL delivers notifications in order. So a hub that has this hint would also have
	// received all earlier hints.
	b.hub.Publish(mail(10))
	a.expectHint(mail(10))

	for name, e := range map[string]*ear{"the sender": a, "another store": other} {
		e.mu.Lock()
		if slices.Contains(e.heard, mail(3)) {
			t.Errorf("%s received %v, want no hint of shard 3", name, e.heard)
		}
		e.mu.Unlock()
	}
}

// The hub combines a flood of hints into few notifications. Without hints it sends none.
func TestCoalescing(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	base := server.NewDatabase(t)
	proxy := pgproxy.New(t, server.Addr())
	listener := open(t, postgres.Config{URL: base}).waitConnected(1)
	e := open(t, postgres.Config{URL: proxy.URL(base), Gap: 20 * time.Millisecond}).waitConnected(1)
	e.hub.Publish(mail(0))
	listener.expectHint(mail(0))
	requests := 0
	proxy.Inject(pgproxy.Rule{Fault: pgproxy.Reset, Match: func(pgproxy.Request) bool { requests++; return false }})
	start := time.Now()

	for range 50 {
		for shard := range 100 {
			e.hub.Publish(mail(shard))
		}
		time.Sleep(time.Millisecond)
	}

	e.hub.Publish(mail(999))
	listener.expectHint(mail(999))
	took := time.Since(start)
	time.Sleep(1500 * time.Millisecond) // the hub must send nothing in this time
	if most := int(took/(20*time.Millisecond)) + 2; requests > most {
		t.Errorf("5,001 hints in %s were sent in %d notifications, want at most %d", took, requests, most)
	}
}

// A hub that lost its connection restores it, tells its subscribers to look at the store, and
// continues.
func TestReconnect(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	c := postgres.Config{URL: server.NewDatabase(t)}
	a, b := open(t, c).waitConnected(1), open(t, c).waitConnected(1)
	a.hub.Publish(mail(1))
	b.expectHint(mail(1))
	if err := server.Stop(pgtest.Immediate); err != nil {
		t.Fatal(err)
	}

	a.hub.Publish(mail(2)) // the hub keeps the hint until it can send it
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.waitConnected(2)
	b.waitConnected(2)
	b.expectHint(notify.Hint{Kind: notify.Membership})

	// Hub a may have sent the hint of shard 2 before b listened again. So b may never receive it,
	// and the test sends new hints until b receives one.
	for i := 100; ; i++ {
		a.hub.Publish(mail(i))
		b.mu.Lock()
		heard := slices.ContainsFunc(b.heard, func(h notify.Hint) bool { return h.Shard >= 100 })
		b.mu.Unlock()
		if heard {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

// A hub that cannot reach its server keeps a bounded number of hints. Publish still never blocks,
// and Close ends the hub. Errors do not show the password.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	e := open(t, postgres.Config{URL: "postgres://nobody:secret@127.0.0.1:1/none"})
	for i := range 100_000 {
		e.hub.Publish(mail(i % 4096))
	}
	e.eventually("a report", func() bool { return len(e.states) > 0 && e.states[0] != nil })
	_ = e.hub.Close()
	if text := e.states[0].Error(); strings.Contains(text, "secret") {
		t.Errorf("the password is in %q", text)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]postgres.Config{
		"url": {URL: "postgres://user:secret@host:port/x"}, "schema": {URL: "postgres://h/d", Schema: `x"; drop`},
	} {
		if h, err := postgres.Open(c); err == nil {
			_ = h.Close()
			t.Errorf("%s: Open accepts the config", name)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the password is in %q", name, err)
		}
	}

	// The URL has parameters that are only for the store. The hub does not send them to the server,
	// but it uses the schema.
	base := pgtest.URL(t)
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for name, value := range map[string]string{"prepare": "off", "schema": "mine", "shards": "64", "pool": "3"} {
		q.Set(name, value)
	}
	u.RawQuery = q.Encode()
	a, b := open(t, postgres.Config{URL: u.String()}).waitConnected(1), open(t, postgres.Config{URL: base, Schema: "mine"}).waitConnected(1)
	a.hub.Publish(mail(1))
	b.expectHint(mail(1))
}
