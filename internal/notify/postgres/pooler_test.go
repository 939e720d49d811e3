package postgres_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/notify/postgres"
	"github.com/perdure/perdure/internal/pgtest"
)

// notes collects the log of a hub.
type notes struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (n *notes) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.Write(b)
}

func (n *notes) lines(part string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Count(n.buf.String(), part)
}

func (n *notes) logger() *slog.Logger { return slog.New(slog.NewTextHandler(n, nil)) }

// Behind a pooler that keeps a server connection per client, a hub sends and receives hints, and
// does not receive its own hints.
func TestHintsBehindPoolerInSessionMode(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	bouncer := server.StartBouncer(t, pgtest.PoolSession, 20)
	var log notes
	c := postgres.Config{URL: bouncer.URL(server.NewDatabase(t)), Log: log.logger()}
	a, b := open(t, c).waitConnected(1), open(t, c).waitConnected(1)
	a.hub.Publish(mail(3))
	b.expectHint(mail(3))
	b.hub.Publish(mail(4)) // when it arrives, the previous one has reached every listener
	a.expectHint(mail(4))
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.heard, mail(3)) {
		t.Errorf("the sender hears its own hint: %v", a.heard)
	}
	if n := log.lines("pooler"); n != 0 {
		t.Errorf("the hub says that it cannot listen: %s", log.buf.String())
	}
}

// Behind a pooler that shares server connections between transactions a hub cannot listen. It
// notices that, even if its own notification comes back by chance, and logs it once. It leaves
// neither a listener nor a setting behind on the shared connections.
func TestHintsBehindPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	base := server.NewDatabase(t)
	for _, size := range []int{1, 5} {
		bouncer := server.StartBouncer(t, pgtest.PoolTransaction, size)
		var log notes
		c := postgres.Config{URL: bouncer.URL(base), Log: log.logger()}
		deaf := open(t, c)
		deaf.eventually("the notice", func() bool { return len(deaf.states) > 0 })
		if err := deaf.states[0]; err == nil || !strings.Contains(err.Error(), "pooler") {
			t.Errorf("pool of %d: the hub reports %v", size, err)
		}
		if n := log.lines("level=WARN"); n != 1 {
			t.Errorf("pool of %d: %d warnings: %s", size, n, log.buf.String())
		}

		// A node that does not use the pooler receives what the hub sends.
		direct := open(t, postgres.Config{URL: base}).waitConnected(1)
		deaf.hub.Publish(mail(7))
		direct.expectHint(mail(7))
		conn, err := pgx.Connect(t.Context(), bouncer.URL(base))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		for range 10 {
			var listening int
			var commit string
			err := conn.QueryRow(t.Context(), `select (select count(*) from pg_listening_channels()), current_setting('synchronous_commit')`,
				pgx.QueryExecModeExec).Scan(&listening, &commit)
			if err != nil || listening != 0 || commit != "on" {
				t.Errorf("pool of %d: a shared connection listens to %d channels and has synchronous_commit %s, %v", size, listening, commit, err)
			}
		}
	}
}

// A hub that cannot connect logs one line, and another line when it can connect again.
func TestHubLogsOneLinePerEpisode(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	var log notes
	e := open(t, postgres.Config{URL: server.NewDatabase(t), Log: log.logger()}).waitConnected(1)
	if err := server.Stop(pgtest.Fast); err != nil {
		t.Fatal(err)
	}

	e.hub.Publish(mail(1))
	e.eventually("several attempts", func() bool { return len(e.states) > 4 })
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.waitConnected(2)
	e.eventually("the end of the episode", func() bool { return log.lines("level=INFO") > 0 })
	if w, i := log.lines("level=WARN"), log.lines("level=INFO"); w != 1 || i != 1 {
		t.Errorf("%d warnings and %d lines of recovery:\n%s", w, i, log.buf.String())
	}
}
