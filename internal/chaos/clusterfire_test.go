//go:build long

package chaos_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
)

var (
	clusterSeed     = flag.Uint64("cluster-seed", 0, "choices of TestLongCluster; 0 draws a seed")
	clusterFaults   = flag.Int("cluster-faults", 60, "number of faults of TestLongCluster")
	clusterKinds    = flag.String("cluster-kinds", "", "kinds of faults of TestLongCluster, with commas; empty for all")
	clusterEvidence = flag.String("cluster-evidence", "", "directory that keeps logs and operations of TestLongCluster, also if it succeeds")
)

const (
	clusterLease = 2 * time.Second
	// unstuckWithin is how long open work may take after the last fault.
	unstuckWithin = time.Minute
	bankAccounts  = 24
)

// member is one process of the cluster, with the proxies of its links.
type member struct {
	name, role, code string
	*process

	mu  sync.Mutex     // held by a fault that concerns the process
	pg  *pgproxy.Proxy // to the database; only nodes have it
	url string         // of the database through the proxy, or of the servers
	env []string       // environment variables with its addresses
	// The links to the node: from other nodes, and, if it is a server, from clients and workers.
	peers, clients, workers *wire
}

// clusterFire is a cluster under fire.
type clusterFire struct {
	t       *testing.T
	seed    uint64
	begun   time.Time
	ledger  ledger
	dir     string // the evidence
	wal     sync.Mutex
	pg      *pgtest.Server
	name    string // of the database
	nodes   []*member
	hands   []*member
	crowd   *crowd
	apps    []*perdure.App
	spawned int

	mu     sync.Mutex
	struck map[string]int
	wounds []*pgproxy.Trigger
	story  []string
	past   []pastLife
}

// pastLife is a process that was started.
type pastLife struct {
	name string
	*process
}

// TestLongCluster runs three nodes with different code, four remote workers and eight clients.
// Every link goes through a proxy. The test injects faults into processes and links. Afterwards
// everything that was started ends, nothing that was confirmed is lost, nothing has happened twice,
// and no lock or claim is left. The registers are linearizable.
func TestLongCluster(t *testing.T) {
	f := &clusterFire{t: t, seed: *clusterSeed, begun: time.Now(), struck: map[string]int{}}
	if f.seed == 0 {
		f.seed = uint64(time.Now().UnixNano() % 1_000_000)
	}
	f.openEvidence()
	f.say("seed %d, %d faults", f.seed, *clusterFaults)
	f.open()
	tended, rest := context.WithCancel(t.Context())
	defer rest()
	go f.tend(tended)
	f.admit()

	rnd := rand.New(rand.NewPCG(f.seed, 1))
	f.strikeAll(rnd)
	f.say("the faults are over: %v", f.struck)
	f.quiesce()
	rest()
	f.retire()
	f.check()
	if !t.Failed() {
		f.say("passed")
	}
}

// say adds a line to the log of the run, and prints it.
func (f *clusterFire) say(format string, args ...any) {
	line := fmt.Sprintf("%8.3fs %s", time.Since(f.begun).Seconds(), fmt.Sprintf(format, args...))
	f.mu.Lock()
	f.story = append(f.story, line)
	f.mu.Unlock()
	fmt.Println(line)
}

// openEvidence creates the directory for logs and operations. The directory stays if the test
// fails.
func (f *clusterFire) openEvidence() {
	f.dir = *clusterEvidence
	if f.dir == "" {
		dir, err := os.MkdirTemp("", "perdure-chaos-")
		if err != nil {
			f.t.Fatal(err)
		}
		f.dir = dir
	} else if err := os.Mkdir(f.dir, 0o755); err != nil {
		f.t.Fatal(err) // checks would fail on the ledger of another run
	}
	f.ledger = ledger{filepath.Join(f.dir, "ledger")}
	f.t.Cleanup(func() {
		if !f.t.Failed() && *clusterEvidence == "" {
			_ = os.RemoveAll(f.dir)
			return
		}
		f.saveEvidence()
		fmt.Println("evidence:", f.dir)
	})
}

func (f *clusterFire) saveEvidence() {
	f.mu.Lock()
	defer f.mu.Unlock()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o644); err != nil {
			f.t.Log(err)
		}
	}
	write("story", strings.Join(f.story, "\n")+"\n")
	for i, p := range f.past {
		write(fmt.Sprintf("process-%03d-%s.log", i, p.name), p.text())
	}
	if f.crowd != nil {
		if err := f.crowd.saveOps(filepath.Join(f.dir, "operations.json")); err != nil {
			f.t.Log(err)
		}
	}
	if f.pg == nil {
		return // the database did not start
	}
	if text, err := os.ReadFile(f.pg.LogFile()); err == nil {
		write("postgres.log", string(text))
	}
}

// direct is the URL of the database without a proxy.
func (f *clusterFire) direct() string {
	f.wal.Lock()
	defer f.wal.Unlock()
	return f.pg.URL(f.name)
}

// memoryDir returns a directory in memory for a database whose test is not about disks. It returns
// an empty text if there is no file system in memory.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "perdure-chaos-") //nolint:usetesting // the directory must be in memory
	if err != nil {
		return ""
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		return ""
	}
	return dir
}

// open starts the database, the proxies and the processes.
func (f *clusterFire) open() {
	f.t.Helper()
	f.pg = pgtest.Start(f.t, pgtest.Options{Fsync: true, Dir: memoryDir(f.t), Settings: map[string]string{"max_wal_size": "256MB", "restart_after_crash": "on"}})
	url := f.pg.NewDatabase(f.t)
	f.name = url[strings.LastIndex(url, "/")+1:]
	f.name, _, _ = strings.Cut(f.name, "?")
	if err := f.prepareClock(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}

	var toWorkers []string
	for i, role := range []string{roleServer, roleServer, roleEmbedded} {
		m := &member{name: fmt.Sprint("n", i+1), role: role}
		m.pg, m.url = startProxy(f.t, url)
		peer := freeAddress(f.t)
		m.peers = newWire(f.t, peer)
		m.env = []string{envPeer + "=" + peer, envAdvertise + "=" + m.peers.addr()}
		if role == roleServer {
			listen := freeAddress(f.t)
			m.clients, m.workers = newWire(f.t, listen), newWire(f.t, listen)
			toWorkers = append(toWorkers, m.workers.addr())
			m.env = append(m.env, envListen+"="+listen, "PERDURE_ADMIN_KEY="+clusterKey, "PERDURE_STORE="+m.url)
		} else {
			m.code = codeBank
		}
		f.nodes = append(f.nodes, m)
		f.raise(m)
	}

	for i, code := range []string{codeFlows, codeFlows, codeCells, codeBank + "," + codeCells} {
		slices.Reverse(toWorkers)
		m := &member{name: fmt.Sprint("w", i+1), role: roleWorker, code: code, url: "grpc://" + strings.Join(toWorkers, ",")}
		f.hands = append(f.hands, m)
		f.raise(m)
	}
}

// raise starts the process of a member.
func (f *clusterFire) raise(m *member) {
	f.t.Helper()
	f.mu.Lock()
	f.spawned++
	n := f.spawned
	f.mu.Unlock()
	env := append([]string{envRole + "=" + m.role, envCode + "=" + m.code}, m.env...)
	if m.role == roleEmbedded {
		env = append(env, envBank+"="+fmt.Sprintf("p%d-", n), envAccounts+"="+strconv.Itoa(bankAccounts))
	}
	m.process = spawn(f.t, m.url, duty{f.ledger, 0, clusterLease}, env...)
	f.mu.Lock()
	f.past = append(f.past, pastLife{m.name, m.process})
	f.mu.Unlock()
}

// tend restarts processes that have ended by themselves. A process gives up if it cannot reach the
// database when it starts.
func (f *clusterFire) tend(ctx context.Context) {
	for ctx.Err() == nil {
		for _, m := range slices.Concat(f.nodes, f.hands) {
			if !m.mu.TryLock() {
				continue
			}
			if isClosed(m.done) && ctx.Err() == nil {
				text := m.text()
				f.say("%s has ended by itself: %s", m.name, text[max(0, len(text)-300):])
				f.raise(m)
			}
			m.mu.Unlock()
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// freeAddress returns an address on which a process can listen. Its port is outside the range for
// outgoing connections, so that it stays free while the process is down.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(10000+rand.IntN(9999)))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

// admit starts the clients.
func (f *clusterFire) admit() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	f.t.Cleanup(cancel)
	f.crowd = &crowd{ctx: ctx, ledger: f.ledger, stopping: make(chan struct{}), waiting: map[int]string{}}
	servers := []string{f.nodes[0].clients.addr(), f.nodes[1].clients.addr()}
	for i := range 8 {
		slices.Reverse(servers)
		app, err := perdure.Dialer{Token: clusterKey}.Dial(ctx, "grpc://"+strings.Join(servers, ","))
		if err != nil {
			f.t.Fatal(err)
		}
		f.apps = append(f.apps, app)
		c := &client{crowd: f.crowd, id: i, app: app, rnd: rand.New(rand.NewPCG(f.seed, uint64(100+i)))}
		c.bank = &bank{app: app, ledger: bankLedger(f.ledger), prefix: fmt.Sprintf("c%d-", i), accounts: bankAccounts}
		f.crowd.people.Go(c.run)
	}
	f.t.Cleanup(func() {
		cancel()
		f.crowd.people.Wait()
		for _, app := range f.apps {
			_ = app.Close()
		}
	})
}

// progress returns how much work is done.
func (w *crowd) progress() string {
	var text strings.Builder
	for i, kind := range errands {
		fmt.Fprintf(&text, "%s %d ", kind, w.done[i].Load())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&text, "operations %d, lost attempts %d, alarms %d", len(w.ops), w.attempts.Load(), len(w.alarms))
	return text.String()
}

// awaitWork waits until the cluster works: the first errands of each kind are done.
func (f *clusterFire) awaitWork(within time.Duration) {
	f.t.Helper()
	limit := time.Now().Add(within)
	for {
		all := true
		for i := range f.crowd.done {
			all = all && f.crowd.done[i].Load() > 0
		}
		if all {
			return
		}
		if time.Now().After(limit) {
			f.t.Fatalf("the cluster does not work after %s: %s; clients wait for %v", within, f.crowd.progress(), f.crowd.busy())
		}
		time.Sleep(20 * time.Millisecond)
	}
}
