package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgproxy"
	"github.com/perdure/perdure/internal/pgtest"
)

func TestBankUnderFirePostgres(t *testing.T) {
	t.Parallel()
	bankUnderFire(t, 20, 6)
}

func TestBankUnderFireSQLite(t *testing.T) {
	t.Parallel()
	bankOnFile(t, 8, 5)
}

const bankLease = 3 * time.Second / 2

// branch is a process of the bank with its own connection to the store.
type branch struct {
	*process
	proxy *pgproxy.Proxy
	url   string
}

// bankFire has the processes of a bank and counts the strikes.
type bankFire struct {
	t        *testing.T
	ledger   ledger
	accounts int
	branches []*branch
	spawned  int
	struck   map[string]int
}

func (f *bankFire) raise(url string) *process {
	f.t.Helper()
	f.spawned++
	return spawn(f.t, url, duty{f.ledger, 0, bankLease}, envBank+"="+fmt.Sprintf("p%d-", f.spawned), envAccounts+"="+strconv.Itoa(f.accounts))
}

// work waits until the ledger has grown by the given number of bytes (a line has about 150), or the
// process has ended. It only looks at the size, because reading the file would take processor time
// from the writers.
func (f *bankFire) work(p *process, bytes int) {
	f.t.Helper()
	size := func() int64 {
		info, err := os.Stat(f.ledger.path)
		if err != nil {
			return 0 // no process has written yet
		}
		return info.Size()
	}

	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(3 * time.Minute)
	for enough := size() + int64(bytes); size() < enough; {
		select {
		case <-tick.C:
		case <-p.done:
			return
		case <-limit:
			f.t.Fatalf("no deed makes progress:\n%s\n%s", openExecutions(f.t, p.url), p.text())
		}
	}
}

// bankUnderFire lets three processes run a bank on one PostgreSQL server. It strikes the processes
// one after the other: it kills a process, stops it past its lease, shuts it down cleanly, cuts it
// off from the store past its lease, or drops the replies to its commits. At the end it closes the
// books.
func bankUnderFire(t *testing.T, accounts, strikes int) {
	t.Helper()
	url := pgtest.URL(t)
	f := &bankFire{t: t, ledger: newLedger(t), accounts: accounts, struck: map[string]int{}}
	for range 3 {
		b := &branch{}
		b.proxy, b.url = startProxy(t, url)
		b.process = f.raise(b.url)
		f.branches = append(f.branches, b)
	}

	kinds := []string{"kill", "stop", "drain", "cut", "drop", "orphan"}
	for s := range strikes {
		if s%len(kinds) == 0 {
			rand.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		}
		f.strike(kinds[s%len(kinds)], f.branches[rand.IntN(len(f.branches))])
	}

	for _, b := range f.branches {
		b.retire(3 * time.Minute)
	}
	f.close(url)
}

// strike waits until the process works, and then disturbs it.
func (f *bankFire) strike(kind string, b *branch) {
	f.t.Helper()
	f.work(b.process, 10_000+rand.IntN(20_000))
	if !b.comesUp(3 * time.Minute) {
		f.t.Fatalf("a process has ended by itself:\n%s", b.text())
	}

	wire := func(r pgproxy.Rule) {
		r.Match = ofLane
		for range 3 {
			r.Nth = 1 + rand.IntN(20)
			b.proxy.Inject(r)
		}
	}

	switch f.struck[kind]++; kind {
	case "kill":
		b.kill()
		b.process = f.raise(b.url)
	case "stop":
		b.signal(syscall.SIGSTOP)
		<-time.After(bankLease + time.Second/2)
		b.signal(syscall.SIGCONT)
	case "drain":
		b.retire(3 * time.Minute)
		b.process = f.raise(b.url)
	case "cut":
		b.proxy.Blackhole()
		<-time.After(bankLease + time.Second/2)
		b.proxy.Heal()
	case "drop":
		wire(pgproxy.Rule{Fault: pgproxy.DropReply})
	case "orphan":
		wire(pgproxy.Rule{Fault: pgproxy.Orphan, Delay: time.Second / 2, Hold: pgproxy.HoldCommit})
	}
}

// bankOnFile lets one process run the bank on a file. It kills the process in each round; in every
// third round it shuts the process down cleanly instead.
func bankOnFile(t *testing.T, accounts, rounds int) {
	t.Helper()
	url := "file:" + filepath.Join(t.TempDir(), "bank.db")
	f := &bankFire{t: t, ledger: newLedger(t), accounts: accounts, struck: map[string]int{}}
	for r := range rounds {
		p := f.raise(url)
		f.work(p, rand.IntN(75_000))
		if r%3 == 2 {
			f.struck["drain"]++
			p.retire(3 * time.Minute)
			continue
		}
		f.struck["kill"]++
		p.kill()
	}
	f.close(url)
}
