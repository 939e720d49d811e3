//go:build long

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
)

// The test makes 40 starts of 2 MiB over a connection with 5 MB/s, with the lease and the time
// limits of production.
func TestLongSlowPath(t *testing.T) {
	t.Parallel()
	slowPath(t, 40, 2<<20-64, 5_000_000, 10*time.Second)
}

func TestLongKillRoundsSQLite(t *testing.T) {
	t.Parallel()
	killRounds(t, "file:"+filepath.Join(t.TempDir(), "chaos.db"), 50)
}

func TestLongKillRoundsPostgres(t *testing.T) {
	t.Parallel()
	killRounds(t, pgtest.URL(t), 50)
}

func TestLongTasksUnderFire(t *testing.T) {
	t.Parallel()
	tasksUnderFire(t, 100_000, 60)
}

func TestLongBankUnderFirePostgres(t *testing.T) {
	t.Parallel()
	bankUnderFire(t, 48, 60)
}

func TestLongBankUnderFireSQLite(t *testing.T) {
	t.Parallel()
	bankOnFile(t, 24, 60)
}

// A process can be stopped while its database is away. Closing takes no longer than the running
// steps, the lease and a last attempt to commit.
func TestLongCloseWithoutDatabase(t *testing.T) {
	t.Parallel()
	proxy, through := startProxy(t, pgtest.URL(t))
	b := openAppWith(t, through, newLedger(t), embedded.Config{LeaseTTL: 2 * time.Second, DrainTimeout: time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	work := startLoad(ctx, b.app, b.ledger, "", 6)
	work.more(t, 3, 3*time.Minute)
	proxy.Blackhole()
	from := time.Now()
	closed := make(chan error, 1)
	go func() { closed <- b.app.Close() }()

	select {
	case err := <-closed:
		t.Logf("closed after %s: %v", time.Since(from), err)
	case <-time.After(3 * time.Minute):
		t.Fatal("the app does not close while its database is away")
	}

	b.closed = true // so that the cleanup does not close the app again
	cancel()
	_, _ = work.stop() // its callers got the error that the app is closed
}

// soak runs three processes that reach one PostgreSQL server through one proxy, and injects faults
// into all of them.
type soak struct {
	t      *testing.T
	rand   *rand.Rand
	pg     *pgtest.Server
	proxy  *pgproxy.Proxy
	url    string // through the proxy
	ledger ledger
	lease  time.Duration

	procs   []*process
	spawned int
	struck  map[string]int
	deck    []int // kinds of the next strikes, as numbers; see strike
	lost    []*pgproxy.Trigger
}

// For two minutes, random faults happen one after the other. After that, nothing may be lost,
// duplicated or stuck. $PERDURE_CHAOS_SEED repeats the choices of a run, but not its timing.
func TestLongSoak(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("PERDURE_CHAOS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}

	t.Logf("PERDURE_CHAOS_SEED=%d", seed)
	lasting := 2 * time.Minute
	if text := os.Getenv("PERDURE_CHAOS_TIME"); text != "" {
		var err error
		if lasting, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}

	s := &soak{t: t, rand: rand.New(rand.NewPCG(seed, 1)), lease: 2 * time.Second, ledger: newLedger(t), struck: map[string]int{}}
	// The first nine strikes are one of each kind, in random order. Random strikes follow. A number
	// here selects a kind in the method strike.
	s.deck = []int{0, 20, 35, 45, 52, 60, 72, 82, 90}
	s.rand.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
	s.pg = pgtest.Start(t, pgtest.Options{})
	direct := s.pg.NewDatabase(t)
	s.proxy, s.url = startProxy(t, direct)
	for range 3 {
		s.procs = append(s.procs, s.spawn())
	}

	for end := time.Now().Add(lasting); time.Now().Before(end); {
		s.strike()
		time.Sleep(s.between(500*time.Millisecond, 3*time.Second)) // a pause without faults
	}

	s.proxy.Heal()
	for _, p := range s.procs {
		p.signal(syscall.SIGCONT)
	}
	for _, l := range s.lost {
		l.Cancel()
	}

	for _, p := range s.procs {
		p.goesOn(30 * time.Second)
		p.signal(syscall.SIGTERM)
		p.finish(3 * time.Minute)
		if strings.Contains(p.text(), "caller heard:") {
			t.Errorf("callers of a process that was never killed heard errors:\n%s", p.text())
		}
	}

	for _, kind := range []string{"kill", "stop", "terminate", "restart", "immediate", "drop", "orphan", "reset", "partition"} {
		if s.struck[kind] == 0 && lasting >= 2*time.Minute {
			t.Errorf("%s never happened", kind)
		}
	}

	t.Logf("struck %v; %d processes; %d faults on the wire", s.struck, s.spawned, len(s.lost))
	verify(t, direct, s.redo(direct), s.ledger)
}

func (s *soak) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rand.Int64N(int64(most-least)))
}

func (s *soak) spawn() *process {
	s.t.Helper()
	s.spawned++
	return spawn(s.t, s.url, duty{s.ledger, 0, s.lease}, envServe+"="+fmt.Sprintf("p%d-", s.spawned))
}

// strike makes the next fault happen.
func (s *soak) strike() {
	s.t.Helper()
	i := s.rand.IntN(len(s.procs))
	p := s.procs[i]

	wire := func(kind string, r pgproxy.Rule) {
		s.struck[kind]++
		for range 1 + s.rand.IntN(3) {
			r.Match, r.Nth = ofLane, 1+s.rand.IntN(30)
			s.lost = append(s.lost, s.proxy.Inject(r))
		}
	}

	dice := s.rand.IntN(100)
	if len(s.deck) > 0 {
		dice, s.deck = s.deck[0], s.deck[1:]
	}

	switch {
	case dice < 20:
		s.struck["kill"]++
		p.kill()
		s.procs[i] = s.spawn()
	case dice < 35:
		s.struck["stop"]++
		p.signal(syscall.SIGSTOP)
		time.Sleep(s.between(s.lease/4, 2*s.lease))
		p.signal(syscall.SIGCONT)
	case dice < 45:
		s.struck["terminate"]++
		select {
		case <-p.up:
			p.signal(syscall.SIGTERM)
			p.finish(3 * time.Minute)
		case <-p.done:
		default: // the process is not up yet
			p.kill()
		}
		s.procs[i] = s.spawn()
	case dice < 52:
		s.struck["restart"]++
		s.restart(pgtest.Fast)
	case dice < 60:
		s.struck["immediate"]++
		s.restart(pgtest.Immediate)
	case dice < 72:
		wire("drop", pgproxy.Rule{Fault: pgproxy.DropReply})
	case dice < 82:
		wire("orphan", pgproxy.Rule{Fault: pgproxy.Orphan, Delay: s.between(0, time.Second), Hold: pgproxy.HoldCommit})
	case dice < 90:
		wire("reset", pgproxy.Rule{Fault: pgproxy.Reset})
	default:
		s.struck["partition"]++
		s.proxy.Blackhole([][]pgproxy.Direction{{}, {pgproxy.ToServer}, {pgproxy.ToClient}}[s.rand.IntN(3)]...)
		time.Sleep(s.between(s.lease/4, 2*s.lease))
		s.proxy.Heal()
	}
}

func (s *soak) restart(m pgtest.Mode) {
	s.t.Helper()
	if err := s.pg.Restart(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
}

// lastNumber returns the number at the end of the last line with this prefix.
func (p *process) lastNumber(line string) int {
	found := regexp.MustCompile(`(?m)^`+line+` (\d+)$`).FindAllStringSubmatch(p.text(), -1)
	if len(found) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(found[len(found)-1][1])
	return n
}

// goesOn waits until the process has made progress.
func (p *process) goesOn(within time.Duration) {
	p.t.Helper()
	limit := time.After(within)
	for from := p.lastNumber("done"); ; {
		p.mu.Lock()
		news := p.news
		p.mu.Unlock()
		if p.lastNumber("done") > from {
			return
		}
		select {
		case <-news:
		case <-limit:
			p.t.Fatalf("the process has done nothing for %s:\n%s\n%s", within, openExecutions(p.t, p.url), p.text())
		}
	}
}

// redo finishes the executions of callers that are gone. It returns the number of executions of
// each kind; all kinds have the same number.
func (s *soak) redo(url string) int {
	s.t.Helper()
	nd, err := node.Open(s.t.Context(), node.Config{URL: url, ReadOnly: true})
	if err != nil {
		s.t.Fatal(err)
	}
	defer nd.Close()
	key := regexp.MustCompile(`^(p\d+-)[cgf](\d+)$`)
	most := map[string]int{}

	req := api.ListRequest{Tenant: model.DefaultTenant, AllRuns: true, Limit: 1000}
	for {
		page, err := nd.Backend().List(s.t.Context(), req)
		if err != nil {
			s.t.Fatal(err)
		}
		for i := range page.Executions {
			if m := key.FindStringSubmatch(page.Executions[i].Start.Address.Key); m != nil {
				n, _ := strconv.Atoi(m[2])
				most[m[1]] = max(most[m[1]], n+1)
			}
		}
		if req.Cursor = page.Cursor; req.Cursor == "" {
			break
		}
	}

	last := openApp(s.t, url, s.ledger, s.lease)
	var wg sync.WaitGroup
	gate := make(chan struct{}, 64)

	total := 0
	for prefix, n := range most {
		total += n
		for i := range n {
			gate <- struct{}{}
			wg.Go(func() {
				defer func() { <-gate }()
				if err := driveOne(last.app.With(s.t.Context()), s.ledger, prefix, i); err != nil {
					s.t.Error(err)
				}
			})
		}
	}

	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		s.t.Fatalf("stuck:\n%s", openExecutions(s.t, url))
	}

	return total
}
