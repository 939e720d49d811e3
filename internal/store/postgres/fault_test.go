package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/postgres"
	"github.com/perdure/perdure/internal/store/storetest"
)

// rig has a store behind a proxy that can break its connections, a second store that always works,
// and a lane that commits through the first store.
type rig struct {
	*testing.T
	proxy  *pgproxy.Proxy
	broken *postgres.Store
	f      *storetest.Fixture // a fixture on the store that works
	node   *storetest.Node
	lane   *storetest.Lane
	run    storetest.Subject
	url    string
}

// newRig makes a rig on a new database of the server of this test process.
func newRig(t *testing.T, change ...func(c *postgres.Config)) *rig {
	t.Helper()
	url := migrated.URL(t)
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return newRigOn(t, url, net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))), change...)
}

// newRigOn makes a rig on a database of the server with an address.
func newRigOn(t *testing.T, url, addr string, change ...func(c *postgres.Config)) *rig {
	t.Helper()
	r := &rig{T: t, url: url}
	r.proxy = pgproxy.New(t, addr)
	good := openURL(t, r.url, change...)
	r.broken = openURL(t, r.proxy.URL(r.url), change...)
	r.f = storetest.New(t, good)
	r.node = r.f.Join(2)
	r.lane = r.node.Lanes[0]
	r.run = r.f.Subject()
	r.commit(r.batch(func(b *store.Batch) { b.Starts = []store.StartRow{r.run.StartRow()} }))
	return r
}

// batch returns the next batch of the lane. It has an event with the number of the batch, and what
// fill adds.
func (r *rig) batch(fill ...func(b *store.Batch)) *store.Batch {
	b := r.lane.Batch()
	b.Events = []store.EventRow{r.run.Event(b.Number)}
	for _, f := range fill {
		f(b)
	}
	return b
}

// commit commits through the store behind the proxy. The connection must not break during this
// commit.
func (r *rig) commit(b *store.Batch) {
	r.Helper()
	if _, err := r.broken.Commit(r.Context(), b); err != nil {
		r.Fatalf("batch %d: %v", b.Number, err)
	}
	r.lane.Landed = b.Number
}

// refence does what an engine does after an unknown outcome.
func (r *rig) refence(s store.Store) (landed int64) {
	r.Helper()
	epoch, landed, err := s.Refence(r.Context(), r.lane.Ref)
	if err != nil {
		r.Fatalf("refence: %v", err)
	}
	r.lane.Ref.Epoch, r.lane.Landed = epoch, landed
	return landed
}

// wantEvents checks that exactly the batches up to the last one were applied, each once.
func (r *rig) wantEvents() {
	r.Helper()
	events, err := r.f.Store.LoadEvents(r.Context(), r.run.RunKey, 0, 1000, 1<<20)
	if err != nil {
		r.Fatal(err)
	}
	if len(events) != int(r.lane.Landed) || len(events) > 0 && events[len(events)-1].Seq != r.lane.Landed {
		r.Fatalf("%d events after batch %d", len(events), r.lane.Landed)
	}
}

// wantNoOpenTransaction fails the test if a session of the store is idle in a transaction.
func (r *rig) wantNoOpenTransaction() {
	r.Helper()
	c, err := pgx.Connect(r.Context(), r.url)
	if err != nil {
		r.Fatal(err)
	}
	defer c.Close(context.Background())
	eventually(r.T, "all transactions to end", func() bool {
		var n int
		err := c.QueryRow(r.Context(), `select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in%'`).Scan(&n)
		if err != nil {
			r.Fatal(err)
		}
		return n == 0
	})
}

// fenceIsLocked reports whether a transaction has changed the fence of a lane and has not ended.
func (r *rig) fenceIsLocked() bool {
	r.Helper()
	c, err := pgx.Connect(r.Context(), r.url)
	if err != nil {
		r.Fatal(err)
	}
	defer c.Close(context.Background())
	var n int
	// Tables of databases that are copies of one template have the same number, so compare the
	// database too.
	const look = `select count(*) from pg_locks join pg_database d on d.oid = database
		where d.datname = current_database() and mode = 'RowExclusiveLock' and relation = 'perdure.fences'::regclass`
	if err := c.QueryRow(r.Context(), look).Scan(&n); err != nil {
		r.Fatal(err)
	}
	return n > 0
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	pause := 5 * time.Millisecond
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("waited too long for %s", what)
		}
		pause = min(pause*5/4, 100*time.Millisecond) // each look costs processor time
	}
}

func isFence(r pgproxy.Request) bool {
	return len(r.SQL) > 0 && strings.Contains(r.SQL[0], "fences set batch")
}

// matchRequest matches a statement that contains a fragment. The fragment "commit" matches only the
// statement that commits a transaction.
func matchRequest(fragment string) func(pgproxy.Request) bool {
	if fragment != "commit" {
		return pgproxy.Mentions(fragment)
	}
	return func(r pgproxy.Request) bool { return len(r.SQL) == 1 && r.SQL[0] == "commit" }
}

// The network breaks in the middle of a commit. The outcome is unknown. Refence returns the true
// outcome, and nothing is lost or applied twice.
func TestCommitWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for _, prepared := range []bool{true, false} {
		for _, c := range []struct {
			name   string
			rule   pgproxy.Rule
			landed bool
		}{
			{"dropped reply", pgproxy.Rule{Fault: pgproxy.DropReply}, true},
			{"reset before the server saw it", pgproxy.Rule{Fault: pgproxy.Reset}, false},
			{"silence", pgproxy.Rule{Fault: pgproxy.Hang}, true},
			{"orphan that holds its locks", pgproxy.Rule{Fault: pgproxy.Orphan, Delay: 300 * time.Millisecond, Hold: pgproxy.HoldCommit}, true},
			// the request of the orphan reaches the server after the refence
			{"orphan that comes late", pgproxy.Rule{Fault: pgproxy.Orphan}, false},
		} {
			t.Run(fmt.Sprintf("%s, prepared %v", c.name, prepared), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, func(c *postgres.Config) { c.NoPrepare, c.Lease = !prepared, 2*time.Second })
				for range 3 {
					r.commit(r.batch())
				}
				c.rule.Match = isFence
				release := make(chan struct{})
				if c.rule.Fault == pgproxy.Orphan && c.rule.Hold == pgproxy.HoldRequest {
					c.rule.Until = release
				}
				lost := r.proxy.Inject(c.rule)
				b := r.batch()
				_, err := r.broken.Commit(t.Context(), b)
				r.f.WantClass(err, store.Unknown)

				if c.rule.Hold == pgproxy.HoldCommit { // it has its locks or has committed
					eventually(t, "the orphan to begin", func() bool {
						select {
						case <-lost.Done():
							return true
						default:
							return r.fenceIsLocked()
						}
					})
				}

				// The lane asks for the fence immediately, through the same broken network. An
				// orphan may not have ended yet.
				landed := r.refence(r.broken)
				close(release)
				if want := b.Number - 1; !c.landed && landed != want || c.landed && landed != b.Number {
					t.Errorf("landed %d of %d, reply was %s", landed, b.Number, lost.Reply())
				}
				reply := lost.Reply()
				if reply.Committed() != c.landed {
					t.Errorf("the server says %s, refence says that batch %d of %d landed", reply, landed, b.Number)
				}
				r.wantEvents()
				r.commit(r.batch()) // the same batch again, or the next one
				r.wantEvents()
				r.wantNoOpenTransaction()
			})
		}
	}
}

// The network breaks in the middle of writes of the store other than commits. After any error, a
// retry has the same result as a call without an error.
func TestOtherWritesWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, mentions string
		call           func(r *rig) error
	}{
		{"register", "insert into \"perdure\".nodes", func(r *rig) error {
			_, err := r.broken.Register(r.Context(), r.node.Info, 2, time.Hour)
			return err
		}},
		{"acquire", "update \"perdure\".shards s set node", func(r *rig) error {
			got, err := r.broken.Acquire(r.Context(), r.node.ID, r.node.Epoch, []model.ShardID{3, 4})
			if err == nil && len(got) != 2 {
				return fmt.Errorf("acquired %v", got)
			}
			return err
		}},
		{"put inbox", "insert into \"perdure\".inbox", func(r *rig) error {
			return r.broken.PutInbox(r.Context(), []store.InboxRow{r.run.Request(r.run.Run, "again")})
		}},
		{"sweep", "commit", func(r *rig) error {
			_, err := r.broken.Sweep(r.Context(), store.SweepRequest{Shards: r.f.Shards(), RequestsBefore: model.MaxTime, Limit: 10})
			return err
		}},
		{"fence node", "commit", func(r *rig) error {
			ok, err := r.broken.FenceNode(r.Context(), store.FenceRequest{Node: r.node.ID, Epoch: r.node.Epoch, Proven: true})
			if err == nil && !ok {
				return errors.New("not fenced")
			}
			return err
		}},
		{"unregister", "commit", func(r *rig) error { return r.broken.Unregister(r.Context(), r.node.ID, r.node.Epoch) }},
	} {
		for _, fault := range []pgproxy.Fault{pgproxy.DropReply, pgproxy.Reset} {
			t.Run(c.name+", "+fault.String(), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				lost := r.proxy.Inject(pgproxy.Rule{Fault: fault, Match: matchRequest(c.mentions)})
				err := c.call(r)
				r.f.WantClass(err, store.Unknown)
				<-lost.Done()

				if err := c.call(r); err != nil {
					t.Errorf("repeated: %v", err)
				}
				r.wantNoOpenTransaction()
			})
		}
	}
}

// The store retries calls that are safe to repeat when their connection breaks.
func TestReadsAndRenewalsSurviveABrokenConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.node.Renew(time.Hour)

	for i, fault := range []pgproxy.Fault{pgproxy.DropReply, pgproxy.Reset} {
		r.proxy.Inject(pgproxy.Rule{Fault: fault, Match: pgproxy.Mentions("history")})
		if _, err := r.broken.LoadEvents(t.Context(), r.run.RunKey, 0, 10, 1000); err != nil {
			t.Errorf("%s: load: %v", fault, err)
		}
		r.proxy.Inject(pgproxy.Rule{Fault: fault, Match: pgproxy.Mentions("update \"perdure\".nodes")})
		v, err := r.broken.Renew(t.Context(), store.RenewRequest{Node: r.node.ID, Epoch: r.node.Epoch, TTL: time.Duration(i+1) * time.Hour})
		if err != nil || len(v.Members) != 1 {
			t.Errorf("%s: renew: %v", fault, err)
		}
		// The answer to a refence is lost. The store must recognise the new epoch of the fence as
		// its own.
		r.proxy.Inject(pgproxy.Rule{Fault: fault, Match: pgproxy.Mentions("fences set epoch")})
		if landed := r.refence(r.broken); landed != 1 {
			t.Errorf("%s: landed %d", fault, landed)
		}
	}

	r.commit(r.batch())
	r.wantEvents()
}

// If a context ends in the middle of a call, the outcome is unknown, and nothing else is wrong.
func TestCancelledInTheMiddle(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cause := errors.New("enough")
	for _, hold := range []pgproxy.Hold{pgproxy.HoldCommit, pgproxy.HoldRequest} {
		held := r.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Delay, Delay: 200 * time.Millisecond, Match: isFence, Hold: hold})
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-held.Hit(); cancel(cause) }()
		_, err := r.broken.Commit(ctx, r.batch())
		r.f.WantClass(err, store.Unknown)
		if !errors.Is(err, cause) {
			t.Errorf("the cause is lost: %v", err)
		}
		r.refence(r.broken)
		r.wantEvents()
		r.commit(r.batch())

		held = r.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Delay, Delay: 200 * time.Millisecond, Match: pgproxy.Mentions("delete from"), Hold: hold})
		ctx, cancel = context.WithCancelCause(t.Context())
		go func() { <-held.Hit(); cancel(cause) }()
		_, err = r.broken.Sweep(ctx, store.SweepRequest{Shards: r.f.Shards(), Limit: 10})
		if !errors.Is(err, cause) {
			t.Errorf("sweep: %v", err)
		}
		r.wantNoOpenTransaction()
	}
	r.wantEvents()
}

// A deadline counts from the call, even if the server does not answer at all.
func TestSilentNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *postgres.Config) { c.Lease = time.Second })
	r.proxy.Blackhole() // until the end, so the calls return only because of their deadlines
	_, err := r.broken.Commit(t.Context(), r.batch())
	r.f.WantClass(err, store.Unknown)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := r.broken.Renew(ctx, store.RenewRequest{Node: r.node.ID, Epoch: r.node.Epoch, TTL: time.Hour}); err == nil {
		t.Error("renewed through a black hole")
	}
	r.proxy.Heal()

	eventually(t, "the network", func() bool {
		epoch, landed, err := r.broken.Refence(t.Context(), r.lane.Ref)
		r.lane.Ref.Epoch, r.lane.Landed = max(epoch, r.lane.Ref.Epoch), max(landed, r.lane.Landed)
		return err == nil
	})

	r.commit(r.batch())
	r.wantEvents()
}

// If a process is stopped or cut off, its session may keep the lock on its fence. That does not
// block a takeover.
func TestTakeoverEndsASessionThatHoldsItsFence(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *postgres.Config) { c.Lease = 2 * time.Second })
	held := r.proxy.Inject(pgproxy.Rule{Fault: pgproxy.Orphan, Delay: time.Hour, Match: isFence, Hold: pgproxy.HoldCommit})
	_, err := r.broken.Commit(t.Context(), r.batch())
	r.f.WantClass(err, store.Unknown)
	<-held.Hit()
	ok, err := r.f.Store.FenceNode(t.Context(), store.FenceRequest{Node: r.node.ID, Epoch: r.node.Epoch, Proven: true})
	if err != nil || !ok {
		t.Fatalf("fence: %v, %v", ok, err)
	}

	r.proxy.CutAll()
	if held.Reply().Committed() {
		t.Error("the fenced session committed")
	}
	r.wantEvents() // the batch was not applied
}

// After any restart of the server the store works again without help. The outcome of the first
// commit after an idle time is known.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgtest.Mode{pgtest.Fast, pgtest.Immediate} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t, pgtest.Options{Settings: map[string]string{"synchronous_commit": "on"}})
			r := newRigOn(t, server.NewDatabase(t), server.Addr())
			r.node.Renew(time.Hour)

			for range 2 {
				if err := server.Stop(mode); err != nil {
					t.Fatal(err)
				}

				// The outcome is unknown as long as the store has a connection on which it can send
				// the batch.
				for class := store.Unknown; class != store.Away; {
					_, err := r.f.Store.Commit(t.Context(), r.batch())
					if class = store.ClassOf(err); class != store.Unknown && class != store.Away {
						t.Fatalf("commit without a server: %v", err)
					}
				}

				if _, err := r.f.Store.Members(t.Context()); store.ClassOf(err) != store.Away {
					t.Errorf("members: %v", err)
				}
				if _, err := r.f.Store.Renew(t.Context(), store.RenewRequest{}); store.ClassOf(err) != store.Away {
					t.Errorf("renew: %v", err)
				}
				if err := server.Start(t.Context()); err != nil {
					t.Fatal(err)
				}

				r.node.Renew(time.Hour)
				if _, err := r.f.Store.Members(t.Context()); err != nil {
					t.Errorf("members: %v", err)
				}
				r.lane.Commit(r.batch())
				r.wantEvents()
			}

			// The store checks a connection that has been idle for a while before it uses it.
			time.Sleep(1100 * time.Millisecond)
			if err := server.Restart(t.Context(), mode); err != nil {
				t.Fatal(err)
			}
			r.lane.Commit(r.batch())
			r.wantEvents()
		})
	}
}

// A server that became read-only is Away. When it can write again, so can the store.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	r := newRigOn(t, server.NewDatabase(t), server.Addr())
	admin, err := pgx.Connect(t.Context(), r.url)
	if err != nil {
		t.Fatal(err)
	}

	defer admin.Close(context.Background())
	exec := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}

	exec(`set default_transaction_read_only = off`) // overrides the setting of the server
	readOnly := func(on bool) {
		t.Helper()
		exec(fmt.Sprintf(`alter system set default_transaction_read_only = %v`, on))
		exec(`select pg_reload_conf()`)
	}

	readOnly(true)
	eventually(t, "the server to be read-only", func() bool {
		_, err := r.f.Store.Commit(t.Context(), r.batch())
		if err == nil {
			r.lane.Landed++
			return false
		}
		r.f.WantClass(err, store.Away)
		return true
	})

	if err := r.f.Store.PutInbox(t.Context(), []store.InboxRow{r.run.Request(r.f.RunID(), "x")}); store.ClassOf(err) != store.Away {
		t.Errorf("put inbox: %v", err)
	}
	readOnly(false)

	eventually(t, "the server to write again", func() bool {
		_, err := r.f.Store.Commit(t.Context(), r.batch())
		if err == nil {
			r.lane.Landed++
		}
		return err == nil
	})

	eventually(t, "the pool to heal", func() bool {
		return r.f.Store.PutInbox(t.Context(), []store.InboxRow{r.run.Request(r.f.RunID(), "x")}) == nil
	})
	r.wantEvents()
}

// A commit gets as much time as its bytes need on a slow network, and more if earlier attempts were
// late. The limits of the statement and of the transaction grow with it.
func TestCommitHasTimeForItsBytes(t *testing.T) {
	t.Parallel()
	const size, rate = 768 << 10, 384 << 10 // this takes two seconds; a small batch gets 1.6 s
	for name, limit := range map[string]func(b *store.Batch){
		"bytes":    func(b *store.Batch) { b.Bytes = size },
		"patience": func(b *store.Batch) { b.Patience = 3 },
	} {
		for _, prepared := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", prepared ", prepared), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, func(c *postgres.Config) { c.Lease, c.NoPrepare = 2*time.Second, !prepared })
				r.proxy.Throttle(rate)
				large := r.batch(limit, func(b *store.Batch) { b.Events[0].Event.Output.Data = make([]byte, size) })
				r.commit(large)
				r.proxy.Throttle(0)
				r.commit(r.batch())
				r.wantEvents()
			})
		}
	}
}
