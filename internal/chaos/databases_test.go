package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/store/postgres"
)

// envDatabase has the URL of the database eu, which holds the shard group eu. If this variable is
// set, the process serves purses of both groups until SIGTERM.
const envDatabase = "PERDURE_CHAOS_DATABASE"

// purse is money with the transfers that have changed it, in order.
type purse struct {
	Cents int
	Did   []string
}

// transfer moves money between a purse of the default group and one of the group eu.
type transfer struct {
	ID       string
	Home, EU string // keys
	Cents    int    // from Home to EU
}

// The purses of the two groups, which live in two databases, and the workflows of each group.
var (
	homePurses = perdure.NewEntity[purse]("purse")
	euPurses   = perdure.NewEntity[purse]("purse@eu")
	homeMove   = perdure.NewOperation(homePurses, "move", movePurse)
	euMove     = perdure.NewOperation(euPurses, "move", movePurse)
	homePay    = perdure.NewWorkflow("pay", pay)
	euPay      = perdure.NewWorkflow("pay@eu", pay)
)

func purseDefinitions() perdure.Group { return perdure.Group{homePurses, euPurses, homePay, euPay} }

// movePurse changes a purse. It records the transfer even if the purse already has it, because the
// test must see a transfer that happened twice.
func movePurse(_ perdure.EntityCtx, p *purse, o order) (purse, error) {
	if o.ID != "" {
		p.Cents += o.Cents
		p.Did = append(p.Did, o.ID)
	}
	return *p, nil
}

// pay locks a purse in each database and moves money from one to the other.
func pay(ctx perdure.WorkflowCtx, tr transfer) (int, error) {
	err := ctx.Lock(perdure.LockSet{homePurses.Ref(tr.Home), euPurses.Ref(tr.EU)}, func(ctx perdure.WorkflowCtx) error {
		if _, err := homeMove.Call(ctx, tr.Home, order{ID: tr.ID, Cents: -tr.Cents}); err != nil {
			return err
		}
		_, err := euMove.Call(ctx, tr.EU, order{ID: tr.ID, Cents: tr.Cents})
		return err
	})
	return tr.Cents, err
}

// town is a cluster on two database servers.
type town struct {
	t      *testing.T
	url    string         // of the first database
	server *pgtest.Server // of the database eu
	member string         // the URL of the database eu
	app    *perdure.App   // the app of the test, which owns no shards
	nodes  []*process

	progress chan struct{} // has an element for each transfer that is done
	done     int           // how many elements the test has taken
}

func newTown(t *testing.T) *town {
	t.Helper()
	w := &town{t: t, url: pgtest.URL(t), server: pgtest.Start(t, pgtest.Options{})}
	w.member = w.server.NewDatabase(t)
	_, err := postgres.Divide(t.Context(), postgres.Config{URL: w.url, Shards: 8, AllowUnsafe: true},
		[]postgres.Member{{Name: "eu", URL: w.member, Groups: []string{"eu"}}}, []model.Group{{Name: "eu", Shards: 8}})
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		w.spawn()
	}
	cfg := embedded.Config{AllowUnsafe: true, LeaseTTL: 3 * time.Second, Databases: map[string]string{"eu": w.member}}
	if w.app, err = cfg.Open(t.Context(), w.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.app.Close() })
	return w
}

// spawn starts a process that serves both groups.
func (w *town) spawn() {
	w.t.Helper()
	p := spawn(w.t, w.url, duty{lease: 3 * time.Second}, envDatabase+"="+w.member)
	w.nodes = append(w.nodes, p)
	select {
	case <-p.up:
	case <-p.done:
		w.t.Fatalf("the process has ended: %s", p.text())
	case <-time.After(2 * time.Minute):
		w.t.Fatalf("the process does not serve: %s", p.text())
	}
}

// replace kills the oldest process and starts another one.
func (w *town) replace() {
	w.nodes[0].signal(syscall.SIGKILL)
	<-w.nodes[0].done
	w.nodes = w.nodes[1:]
	w.spawn()
}

const pursesOfTown = 6

// transfers makes the transfers from first to last, half of them by workflows of each group. If a
// call fails, the caller repeats the call under the same key.
func (w *town) transfers(ctx context.Context, first, last int) error {
	var wg sync.WaitGroup
	errs := make(chan error, last-first+1)
	slots := make(chan struct{}, 8)

	for i := first; i <= last; i++ {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			tr := transfer{ID: fmt.Sprint("t", i), Home: fmt.Sprint("p", i%pursesOfTown), EU: fmt.Sprint("p", i*5%pursesOfTown), Cents: i}
			flow := homePay
			if i%2 == 1 {
				flow = euPay
			}
			for {
				_, err := flow.Run(w.app.With(ctx), tr, perdure.RawKey(tr.ID))
				if err == nil {
					w.progress <- struct{}{}
					return
				}
				if ctx.Err() != nil {
					errs <- fmt.Errorf("transfer %s: %w", tr.ID, errors.Join(err, context.Cause(ctx)))
					return
				}
				select {
				case <-ctx.Done(): // the next call says so
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}

	wg.Wait()
	close(errs)
	return <-errs
}

// audit checks that every transfer is in exactly one purse of each group, once, and that no money
// was lost or made.
func (w *town) audit(ctx context.Context, transfers int) {
	w.t.Helper()
	total := 0
	for group, read := range map[string]*perdure.Operation[order, purse]{"default": homeMove, "eu": euMove} {
		times := map[string]int{}
		for i := range pursesOfTown {
			p, err := read.Call(w.app.With(ctx), fmt.Sprint("p", i), order{})
			if err != nil {
				w.t.Fatal(err)
			}
			total += p.Cents
			for _, id := range p.Did {
				times[id]++
			}
		}

		for i := 1; i <= transfers; i++ {
			if id := fmt.Sprint("t", i); times[id] != 1 {
				w.t.Errorf("transfer %s took effect %d times in the group %s", id, times[id], group)
			}
		}
		if len(times) != transfers {
			w.t.Errorf("%d transfers in the group %s, want %d", len(times), group, transfers)
		}
	}
	if total != 0 {
		w.t.Errorf("all purses together have %d cents, want 0", total)
	}
}

// wait waits until so many transfers are done.
func (w *town) wait(ctx context.Context, n int) {
	w.t.Helper()
	for ; w.done < n; w.done++ {
		select {
		case <-ctx.Done():
			w.t.Fatalf("%d of %d transfers: %v", w.done, n, context.Cause(ctx))
		case <-w.progress:
		}
	}
}

// Money moves between entities in two databases, by workflows in both of them, while processes are
// killed and one of the databases restarts. Every transfer takes effect exactly once on both sides.
func TestTwoDatabases(t *testing.T) {
	t.Parallel()
	shakeTown(t, 120, []string{"kill", "restart"})
}

// shakeTown makes transfers and injects the faults one after the other, each after some progress.
func shakeTown(t *testing.T, transfers int, all []string) {
	t.Helper()
	w := newTown(t)
	w.progress = make(chan struct{}, transfers)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- w.transfers(ctx, 1, transfers) }()

	for i, fault := range all {
		w.wait(ctx, (i+1)*transfers/(len(all)+2))
		switch fault {
		case "kill":
			w.replace()
		case "restart":
			if err := w.server.Restart(ctx, pgtest.Immediate); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	w.audit(ctx, transfers)
}
