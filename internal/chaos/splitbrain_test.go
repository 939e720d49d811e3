//go:build long

package chaos_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pgtest"
)

var splitRounds = flag.Int("split-rounds", 20, "rounds of each TestLongSplitBrain")

const (
	splitLease = 2 * time.Second
	splitCells = readCellCount
)

// split has two nodes: the test cuts the victim off again and again, and the other node takes over
// from it.
type split struct {
	t      *testing.T
	url    string
	db     *pgx.Conn // used by neither node
	victim *process
	reads  string // the file in which the victim writes what it has read
	other  *perdure.App
	wrote  [splitCells][]written
}

// written is a value of a cell, and the time at which its writer got the answer.
type written struct {
	value int
	at    int64
}

// A process that is stopped past its lease commits nothing and answers nothing when it continues.
func TestLongSplitBrainByPause(t *testing.T) {
	url := pgtest.Start(t, pgtest.Options{Fsync: true}).NewDatabase(t)
	s := &split{t: t, url: url}
	s.open(func(env ...string) *process { return spawn(t, url, duty{newLedger(t), 0, splitLease}, env...) })
	s.rounds(func() { s.victim.signal(syscall.SIGSTOP) }, func() { s.victim.signal(syscall.SIGCONT) })
}

// A process in a network namespace loses its network. After the end of its lease it commits nothing
// and answers nothing, also when the network is back.
func TestLongSplitBrainByPartition(t *testing.T) {
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and the command ip, for a network namespace")
	}
	server := pgtest.Start(t, pgtest.Options{Fsync: true})
	url := server.NewDatabase(t)
	lan := newNamespace(t)
	w := newWireAt(t, lan.host, server.Addr())
	s := &split{t: t, url: url}
	s.open(func(env ...string) *process {
		return spawnFrom(t, lan.runner(os.Args[0]), strings.Replace(url, server.Addr(), w.addr(), 1), duty{newLedger(t), 0, splitLease}, env...)
	})
	s.rounds(func() { lan.set("down") }, func() { lan.set("up") })
}

// open prepares the database and starts both nodes.
func (s *split) open(start func(env ...string) *process) {
	s.t.Helper()
	cfg := embedded.Config{LeaseTTL: splitLease}
	other, err := cfg.Open(s.t.Context(), s.url, cells)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = other.Close() })
	s.other = other

	// A trigger records every write of a state, with the session that wrote it and the node that
	// owned the shard at that time.
	s.db = connect(s.t, s.url)
	for _, sql := range []string{
		`create schema faults`,
		`create table faults.writes (session text, owner uuid)`,
		`create function faults.note() returns trigger language plpgsql as $$ begin
			insert into faults.writes select current_setting('application_name'), node from perdure.shards where shard = new.shard;
			return new; end $$`,
		`create trigger note after insert or update on perdure.entities for each row execute function faults.note()`,
	} {
		if _, err := s.db.Exec(s.t.Context(), sql); err != nil {
			s.t.Fatal(err)
		}
	}

	s.reads = filepath.Join(s.t.TempDir(), "reads")
	s.victim = start(envRole+"="+roleReader, envCode+"="+codeCells, envReads+"="+s.reads)
}

// rounds cuts the victim off again and again, and checks at the end what both nodes did.
func (s *split) rounds(cut, heal func()) {
	for round := 1; round <= *splitRounds; round++ {
		s.awaitShare()
		cut()
		for i := range s.wrote {
			s.write(i, round)
		}
		time.Sleep(splitLease / 4) // the victim continues to ask
		heal()
		if round%10 == 0 {
			s.t.Logf("%d rounds", round)
		}
	}
	s.awaitShare()
	s.victim.signal(syscall.SIGTERM)
	s.victim.finish(3 * time.Minute)
	s.checkReads()
	s.checkWrites()
}

// awaitShare waits until the victim owns shards again, and has written and read as their owner.
func (s *split) awaitShare() {
	s.t.Helper()
	size := func() int64 {
		info, err := os.Stat(s.reads)
		if err != nil {
			return 0
		}
		return info.Size()
	}

	const own = `select count(*) from faults.writes where owner in (select node from perdure.nodes where pid = $1)`
	first, before := -1, size()
	for end := time.Now().Add(healing); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var writes int
		if err := s.db.QueryRow(s.t.Context(), own, s.victim.cmd.Process.Pid).Scan(&writes); err != nil {
			s.t.Fatal(err)
		}
		if first < 0 {
			first = writes
		}
		if writes > first && size() > before+2000 {
			return
		}
	}
	s.t.Fatalf("the node owns nothing, or does nothing:\n%s", s.victim.text())
}

// write writes a value through the node that is not cut off, after that node has taken the shard
// over.
func (s *split) write(cell, value int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), healing)
	defer cancel()
	id := perdure.RequestID(fmt.Sprintf("round-%d-%d", value, cell))
	for {
		_, err := swap.Call(s.other.With(ctx), cellKey(cell), value, id)
		if err == nil {
			s.wrote[cell] = append(s.wrote[cell], written{value, time.Now().UnixNano()})
			return
		}
		if ctx.Err() != nil {
			s.t.Fatalf("cell %d, round %d: %v", cell, value, err)
		}
	}
}

// checkReads checks that the victim never answered a question with a value that had been replaced
// before the question.
func (s *split) checkReads() {
	s.t.Helper()
	f, err := os.Open(s.reads)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	reads, rounds := 0, map[int]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); reads++ {
		var cell, value int
		var asked int64
		if _, err := fmt.Sscan(lines.Text(), &asked, &cell, &value); err != nil {
			s.t.Fatalf("%q: %v", lines.Text(), err)
		}
		rounds[value] = true
		// the last value that was written before the question
		n, _ := slices.BinarySearchFunc(s.wrote[cell], asked, func(w written, at int64) int { return int(min(max(w.at-at, -1), 1)) })
		if n > 0 && value < s.wrote[cell][n-1].value {
			s.t.Errorf("the node that was cut off read %d from cell %d, %s after %d had been written", value, cell, time.Duration(asked-s.wrote[cell][n-1].at), s.wrote[cell][n-1].value)
		}
	}
	s.t.Logf("the node that was cut off answered %d questions, with values of %d rounds", reads, len(rounds))
	if len(rounds) < *splitRounds/2 {
		s.t.Errorf("it answered with values of only %d of %d rounds, so this test shows little", len(rounds), *splitRounds)
	}
}

// checkWrites checks that the node that owned the shard wrote every state.
func (s *split) checkWrites() {
	s.t.Helper()
	rows, err := s.db.Query(s.t.Context(), `select session, owner from faults.writes`)
	if err != nil {
		s.t.Fatal(err)
	}
	type write struct {
		Session string
		Owner   [16]byte
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[write])
	if err != nil {
		s.t.Fatal(err)
	}

	nodes := map[[16]byte]int{}
	for _, w := range all {
		nodes[w.Owner]++
		if !strings.Contains(w.Session, model.NodeID(w.Owner).String()) {
			s.t.Errorf("session %q wrote a state in a shard of %s", w.Session, model.NodeID(w.Owner))
		}
	}
	s.t.Logf("%d states were written by %d nodes", len(all), len(nodes))
	if len(all) < *splitRounds*splitCells || len(nodes) < 2 {
		s.t.Errorf("only %d nodes have written %d states in %d rounds", len(nodes), len(all), *splitRounds)
	}
}

// namespace is a network namespace with one link to the host.
type namespace struct {
	t          *testing.T
	name, link string
	host       string // address of the host on the link
}

// newNamespace makes a network namespace that is removed at the end of the test.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	id := os.Getpid() % 10_000
	n := &namespace{t: t, name: fmt.Sprint("perdure", id), link: fmt.Sprint("perdure", id), host: fmt.Sprintf("10.213.%d.1", id%250)}
	t.Cleanup(func() {
		_ = exec.Command("ip", "link", "del", n.link).Run()
		_ = exec.Command("ip", "netns", "del", n.name).Run()
	})
	n.ip("netns", "add", n.name)
	n.ip("link", "add", n.link, "type", "veth", "peer", "name", "eth0", "netns", n.name)
	n.ip("addr", "add", n.host+"/24", "dev", n.link)
	n.ip("-n", n.name, "addr", "add", strings.TrimSuffix(n.host, "1")+"2/24", "dev", "eth0")
	n.ip("-n", n.name, "link", "set", "eth0", "up")
	n.ip("-n", n.name, "link", "set", "lo", "up")
	n.set("up")
	return n
}

func (n *namespace) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// set sets the link up or down. While it is down, packets vanish.
func (n *namespace) set(state string) { n.ip("link", "set", n.link, state) }

// runner returns the path of a script that runs another program in the namespace.
func (n *namespace) runner(program string) string {
	n.t.Helper()
	path := filepath.Join(n.t.TempDir(), "run")
	if err := os.WriteFile(path, []byte(fmt.Sprintf("#!/bin/sh\nexec ip netns exec %s %s\n", n.name, program)), 0o755); err != nil {
		n.t.Fatal(err)
	}
	return path
}
