//go:build long

package chaos_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/pgtest"
)

// release has the programs of one release: the command perdure, and the program of the directory
// mixed, which is a worker or a client.
type release struct{ name, perdure, mixed string }

// buildRelease builds the programs of the release whose sources are in a directory. flags are
// further flags of the go command.
func buildRelease(t *testing.T, name, tree string, flags ...string) release {
	t.Helper()
	dir := t.TempDir()
	r := release{name, filepath.Join(dir, "perdure"), filepath.Join(dir, "mixed")}
	goCommand(t, tree, slices.Concat([]string{"build"}, flags, []string{"-o", r.perdure, "./cmd/perdure"})...)
	goCommand(t, tree, slices.Concat([]string{"build"}, flags, []string{"-o", r.mixed, "./internal/chaos/mixed"})...)
	return r
}

// buildReleases builds the previous release and this one. The previous release gets a copy of the
// program mixed.
func buildReleases(t *testing.T) (old, now release) {
	t.Helper()
	tree := unpackPrevious(t)
	if err := os.CopyFS(filepath.Join(tree, "internal", "chaos", "mixed"), os.DirFS("mixed")); err != nil {
		t.Fatal(err)
	}
	// With this flag, the go command can use its cache although the directory is a new one.
	return buildRelease(t, "the previous release", tree, "-trimpath"), buildRelease(t, "this release", topOf(t))
}

// mixedLimit bounds the wait for a fact. It is much longer than any machine needs: the test fails
// only if the fact does not become true at all.
const mixedLimit = 15 * time.Minute

// Servers, remote workers and clients of the previous release and of this one work together on one
// PostgreSQL database. The test replaces processes one after the other while all clients make
// calls. It first replaces both servers by this release. Then it replaces every worker and two of
// the clients by the other release. Then it replaces both servers by the previous release, and at
// last one server by this release again.
//
// Each server has a worker and a client of each release. After each change, every client finishes a
// round in which it runs a task on every worker, and every worker runs a step. So every combination
// of the releases of a client, a server and a worker occurs. No call may fail. At the end,
// everything has ended, every result is right, and the body of every step and task has run once per
// attempt, unless a server ended while it ran.
func TestLongMixedReleases(t *testing.T) {
	t.Parallel()
	old, now := buildReleases(t)
	t.Run("rolling to this release and back", func(t *testing.T) {
		t.Parallel()
		rollMixed(t, old, now, false)
	})
	t.Run("workers with different code", func(t *testing.T) {
		t.Parallel()
		rollMixed(t, old, now, true)
	})
	t.Run("refusals", func(t *testing.T) {
		t.Parallel()
		refuseMixed(t, old, now)
	})
}

// rollMixed replaces the processes. With different set, each worker has a workflow that the others
// lack, so workers also run code for the other server.
func rollMixed(t *testing.T, old, now release, different bool) {
	t.Helper()
	f := openFleet(t, old, different)
	for i, r := range []release{old, now, old, now} {
		f.setWorker(i, r)
	}
	for i, r := range []release{old, now, old, now} {
		f.setClient(i, r)
	}
	f.awaitRounds("two servers of the previous release")

	f.serve(1, now) // upgrades the schema
	f.awaitRounds("one server of each release")
	f.runCommands(old, now)
	// The other server has opened the schema of its release. So the two servers do not connect to
	// each other, and say why.
	f.sites[1].server.await("version 14 of the schema", mixedLimit)
	f.serve(0, now)
	f.awaitRounds("two servers of this release")

	for i, r := range []release{now, old, now, old} {
		f.setWorker(i, r)
	}
	f.setClient(2, now)
	f.setClient(3, old)
	f.awaitRounds("other workers and clients")

	f.serve(1, old)
	f.awaitRounds("one server of each release again")
	f.serve(0, old)
	f.awaitRounds("two servers of the previous release on the upgraded schema")
	f.serve(0, now)
	f.awaitRounds("one server of this release again")
	for n, s := range f.sites { // both have opened the upgraded schema
		if strings.Contains(s.server.text(), "of the schema; this node") {
			t.Errorf("the server of site %d has refused a connection:\n%s", n, s.server.text())
		}
	}

	f.endClients()
	f.verify()
	f.endAll()
}

// refuseMixed starts servers on stores that they cannot read, or that they must not change. None of
// them starts, and all of them say why.
func refuseMixed(t *testing.T, old, now release) {
	t.Helper()
	pg := pgtest.Start(t, pgtest.Options{Fsync: true, Dir: memoryDir(t)})
	second := pg.NewDatabase(t)
	for _, c := range []struct {
		what       string
		before     release  // makes the store
		migrate    []string // further arguments of migrate
		serves     release
		args       []string // further arguments of serve
		want, next string
	}{
		{
			what: "the previous release on a store with shard groups", before: now, migrate: []string{"--groups", "gpu=4"}, serves: old,
			want: `has version \d+ of the schema and this build knows up to 14`, next: "upgraded by a newer build: run that one",
		},
		{
			what: "the previous release on a store in two databases", before: now, migrate: []string{"--databases", "eu=" + second, "--groups", "eu=4@eu"}, serves: old,
			want: `has version \d+ of the schema and this build knows up to 14`, next: "upgraded by a newer build: run that one",
		},
		{
			what: "the previous release on the other one of two databases", serves: old,
			want: `has version \d+ of the schema and this build knows up to 14`, next: "upgraded by a newer build: run that one",
		},
		{
			what: "this release, which must not upgrade, on a store of the previous one", before: old, serves: now, args: []string{"--no-migrate"},
			want: `has version 14 of the schema and this build needs \d+`, next: "run `perdure migrate`",
		},
	} {
		store := second
		if c.before.perdure != "" {
			store = pg.NewDatabase(t)
			if out, err := perdureCommand(t, c.before, append([]string{"migrate", "--store", store}, c.migrate...)...).CombinedOutput(); err != nil {
				t.Fatalf("%s: migrate: %v\n%s", c.what, err, out)
			}
		}

		cmd := perdureCommand(t, c.serves, append([]string{"serve", "--listen", "127.0.0.1:0"}, c.args...)...)
		cmd.Env = append(cmd.Env, "PERDURE_STORE="+store, "PERDURE_ADMIN_KEY="+clusterKey)
		p := launch(t, store, cmd)
		for !isClosed(p.done) && !strings.Contains(p.text(), "msg=serving ") {
			time.Sleep(10 * time.Millisecond)
		}
		p.signal(syscall.SIGTERM)
		if how := p.ending(); !how.Exited() || how.ExitStatus() == 0 || strings.Contains(p.text(), "msg=serving ") {
			t.Errorf("%s: the server has started:\n%s", c.what, p.text())
		}
		if !regexp.MustCompile(c.want).MatchString(p.text()) || !strings.Contains(p.text(), c.next) {
			t.Errorf("%s: the server said:\n%s\nwant %q and %q", c.what, p.text(), c.want, c.next)
		}
	}
}

// perdureCommand is a command of a release. It has none of the variables PERDURE_… of the test,
// because a server refuses to start with variables that it does not know.
func perdureCommand(t *testing.T, r release, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(r.perdure, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	return cmd
}

// fleet is a cluster with processes of two releases.
type fleet struct {
	t      *testing.T
	begun  time.Time
	url    string // of the database
	ledger ledger

	sites   [2]*site
	workers map[int]*process
	clients map[int]*process
	started int // processes
	past    []pastLife
	stops   []period
	lost    string // a server that lost its lease because it got no processor time; usually empty
	// different says that each worker has code that the others lack.
	different bool
}

// site is the place of one server. It has two addresses, so that the next server can start before
// the current one ends. The workers and clients of the site know both addresses.
type site struct {
	addresses [2]string
	current   int // the index of the address of the server
	server    *process
}

func (s *site) url() string { return "grpc://" + strings.Join(s.addresses[:], ",") }

// openFleet starts a database and two servers of a release.
func openFleet(t *testing.T, r release, different bool) *fleet {
	t.Helper()
	pg := pgtest.Start(t, pgtest.Options{Fsync: true, Dir: memoryDir(t)})
	f := &fleet{t: t, begun: time.Now(), url: pg.NewDatabase(t), ledger: newLedger(t), workers: map[int]*process{}, clients: map[int]*process{}}
	f.different = different
	t.Cleanup(f.saveLogs)
	for i := range f.sites {
		f.sites[i] = &site{addresses: [2]string{freeAddress(t), freeAddress(t)}}
		f.serve(i, r)
	}
	return f
}

// say logs how far the test is.
func (f *fleet) say(format string, args ...any) {
	fmt.Printf("%8.3fs %s\n", time.Since(f.begun).Seconds(), fmt.Sprintf(format, args...))
}

var mixedLogs = flag.String("mixed-logs", "", "directory that keeps the logs of TestLongMixedReleases")

// saveLogs keeps the logs of all processes if the test has failed.
func (f *fleet) saveLogs() {
	if !f.t.Failed() && *mixedLogs == "" {
		return
	}
	dir, err := *mixedLogs, error(nil)
	if dir == "" {
		dir, err = os.MkdirTemp("", "perdure-mixed-")
	}
	if err != nil {
		f.t.Log(err)
		return
	}
	fmt.Println("logs:", dir)
	for i, p := range f.past {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d-%s.log", i, p.name)), []byte(p.text()), 0o644); err != nil {
			f.t.Log(err)
		}
	}
}

// start starts a process of a release and waits for a text in its output.
func (f *fleet) start(name string, r release, cmd *exec.Cmd, text string) *process {
	f.t.Helper()
	p := launch(f.t, f.url, cmd)
	f.past = append(f.past, pastLife{name, p})
	p.await(text, mixedLimit)
	f.say("%s of %s is up", name, r.name)
	return p
}

// end asks a process to end, and waits until it has ended.
func (f *fleet) end(name string, p *process) {
	f.t.Helper()
	p.signal(syscall.SIGTERM)
	f.awaitEnd(name, p)
}

// awaitEnd waits until a process has ended, and checks what it has said.
func (f *fleet) awaitEnd(name string, p *process) {
	f.t.Helper()
	p.finish(mixedLimit)
	for line := range strings.Lines(p.text()) {
		if strings.Contains(line, "lost its lease") {
			f.lost = name
		} else if strings.HasPrefix(line, "fatal error:") || strings.HasPrefix(line, "caller got:") || strings.Contains(line, "level=ERROR") {
			f.t.Errorf("%s said: %s", name, line)
		}
	}
	f.say("%s has ended", name)
}

// serve starts a server of a release at the free address of a site, and ends the other server of
// the site. Then it waits until the workers of the site have connected to the new server.
func (f *fleet) serve(n int, r release) {
	f.t.Helper()
	s := f.sites[n]
	s.current = 1 - s.current
	cmd := perdureCommand(f.t, r, "serve", "--listen", s.addresses[s.current], "--lease", "20s")
	cmd.Env = append(cmd.Env, "PERDURE_STORE="+f.url, "PERDURE_ADMIN_KEY="+clusterKey)
	f.started++
	next := f.start(fmt.Sprintf("server-%d", f.started), r, cmd, "msg=serving ")
	before := s.server
	s.server = next
	if before == nil {
		return
	}
	from := time.Now()
	before.signal(syscall.SIGTERM)
	for limit := from.Add(mixedLimit); strings.Count(next.text(), `msg="worker connected"`) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			f.t.Fatalf("the workers do not connect to server-%d:\n%s", f.started, next.text())
		}
	}
	f.awaitEnd(fmt.Sprintf("the server before server-%d", f.started), before)
	f.stops = append(f.stops, period{from, time.Now()})
}

// period is a time in which a server ended.
type period struct{ from, to time.Time }

// program starts the program mixed of a release. Two workers and two clients belong to each site.
func (f *fleet) program(role, name string, n int, r release) *process {
	f.t.Helper()
	cmd := exec.Command(r.mixed)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.t.TempDir()}
	for key, value := range map[string]string{
		"ROLE": role, "NAME": name, "URL": f.sites[n/2].url(), "KEY": clusterKey, "LEDGER": f.ledger.path, "WORKERS": "w0,w1,w2,w3",
	} {
		cmd.Env = append(cmd.Env, "PERDURE_CHAOS_"+key+"="+value)
	}
	if f.different {
		cmd.Env = append(cmd.Env, "PERDURE_CHAOS_DIFFERENT=1")
	}
	return f.start(name, r, cmd, "\nup")
}

// setWorker starts a worker of a release, and ends the worker of the same name.
func (f *fleet) setWorker(n int, r release) {
	f.t.Helper()
	next := f.program("worker", fmt.Sprint("w", n), n, r)
	if before := f.workers[n]; before != nil {
		f.end(fmt.Sprintf("the worker before w%d", n), before)
	}
	f.workers[n] = next
}

// setClient starts a client of a release, and ends the client before it.
func (f *fleet) setClient(n int, r release) {
	f.t.Helper()
	f.started++
	next := f.program("client", fmt.Sprintf("c%d-%d", n, f.started), n, r)
	if before := f.clients[n]; before != nil {
		f.end(fmt.Sprintf("client %d", n), before)
	}
	f.clients[n] = next
}

// lastRound returns how many rounds a client has finished, and a channel that is closed when the
// client prints another line.
func (p *process) lastRound() (n int, news <-chan struct{}) {
	p.mu.Lock()
	news = p.news
	p.mu.Unlock()
	text := p.text()
	if i := strings.LastIndex(text, "\nround "); i >= 0 {
		text, _, _ = strings.Cut(text[i+len("\nround "):], ".")
		n, _ = strconv.Atoi(text)
	}
	return n, news
}

// clientLanes is how many rounds a client makes at the same time.
const clientLanes = 2

// awaitRounds waits until each client has finished a round that it started after the call, and each
// worker has run a step.
func (f *fleet) awaitRounds(what string) {
	f.t.Helper()
	f.say("now: %s", what)
	before := len(readLines(f.t, f.ledger.path+".trace"))
	defer f.awaitSteps(what, before)
	first := map[int]int{}
	for n, p := range f.clients {
		first[n], _ = p.lastRound()
	}

	for n, p := range f.clients {
		limit := time.After(mixedLimit)
		// The first rounds may have been under way at the time of the call.
		for {
			last, news := p.lastRound()
			if strings.Contains(p.text(), "caller got:") {
				f.t.Fatalf("client %d failed with %s:\n%s", n, what, p.text())
			}
			if last > first[n]+clientLanes {
				break
			}
			select {
			case <-news:
			case <-p.done:
				f.t.Fatalf("client %d has ended with %s:\n%s", n, what, p.text())
			case <-limit:
				f.t.Fatalf("client %d has no result with %s:\n%s\n%s", n, what, openExecutions(f.t, f.url), p.text())
			}
		}
	}
}

// awaitSteps waits until each worker has run the body of a step. before is the number of bodies
// that do not count.
func (f *fleet) awaitSteps(what string, before int) {
	f.t.Helper()
	for limit := time.Now().Add(mixedLimit); ; time.Sleep(10 * time.Millisecond) {
		idle := map[string]bool{}
		for n, p := range f.workers {
			idle[fmt.Sprintf("process %d of w%d", p.cmd.Process.Pid, n)] = true
		}
		for _, line := range readLines(f.t, f.ledger.path+".trace")[before:] {
			id, where, _ := strings.Cut(line, " ")
			_, where, _ = strings.Cut(where, " in ")
			if !strings.HasSuffix(id, "#job") {
				delete(idle, where)
			}
		}
		if len(idle) == 0 {
			return
		}
		if time.Now().After(limit) {
			f.t.Fatalf("workers that run no step with %s: %v", what, idle)
		}
	}
}

// runCommands runs commands of both releases against both servers.
func (f *fleet) runCommands(all ...release) {
	f.t.Helper()
	for _, r := range all {
		for _, s := range f.sites {
			for _, line := range []string{"workflow list -o json", "worker list -o json", "node list -o json", "entity list counter -o json"} {
				cmd := perdureCommand(f.t, r, append(strings.Fields(line), "--server", "grpc://"+s.addresses[s.current])...)
				cmd.Env = append(cmd.Env, "PERDURE_TOKEN="+clusterKey)
				if out, err := cmd.CombinedOutput(); err != nil {
					f.t.Errorf("perdure %s of %s: %v\n%s", line, r.name, err, out)
				}
			}
		}
	}
}

// endClients lets all clients finish their rounds.
func (f *fleet) endClients() {
	f.t.Helper()
	for _, p := range f.clients {
		p.signal(syscall.SIGTERM)
	}
	for n, p := range f.clients {
		f.end(fmt.Sprintf("client %d", n), p)
	}
}

// endAll ends the workers and the servers.
func (f *fleet) endAll() {
	f.t.Helper()
	for n, p := range f.workers {
		f.end(fmt.Sprintf("worker %d", n), p)
	}
	for n, s := range f.sites {
		f.end(fmt.Sprintf("the server of site %d", n), s.server)
	}
}

// verify waits until nothing is open, and compares the store with what the processes have recorded.
func (f *fleet) verify() {
	f.t.Helper()
	for end := time.Now().Add(mixedLimit); ; time.Sleep(100 * time.Millisecond) {
		open := leftovers(f.t.Context(), f.url)
		if len(open) == 0 {
			break
		}
		if time.Now().After(end) {
			f.t.Fatalf("stuck: %v\n%s", open, openExecutions(f.t, f.url))
		}
	}

	ran := f.ledger.counts(f.t)
	f.verifyBodies(ran)
	runs := f.verifyRuns(ran)
	f.verifyEntities(runs)
	f.say("runs %v; %d bodies", runs, len(ran))
}

// verifyBodies checks that the body of each step and task ran exactly once per attempt. A body may
// run again if a server ended between the two runs, see docs/remote-workers.md.
func (f *fleet) verifyBodies(ran map[string]int) {
	f.t.Helper()
	times := map[string][]time.Time{}
	for _, line := range readLines(f.t, f.ledger.path+".trace") {
		words := strings.Fields(line)
		at, err := time.Parse(time.RFC3339Nano, words[1])
		if err != nil {
			f.t.Fatal(err)
		}
		times[words[0]] = append(times[words[0]], at)
	}

	again := 0
	for id, n := range ran {
		want := 1
		if strings.HasSuffix(id, "#4") && !strings.HasPrefix(id, "m-") {
			want = 2 // the first attempt of this step of a chain fails
		}
		switch {
		case n > want && (f.lost != "" || f.hasStopBetween(times[id])):
			again++
			f.say("body %s ran %d times, want %d:\n%s", id, n, want, f.trace(id))
		case n != want:
			f.t.Errorf("body %s ran %d times, want %d:\n%s", id, n, want, f.trace(id))
		}
	}
	f.say("%d of %d bodies ran again because a server ended", again, len(ran))
}

// hasStopBetween reports whether a server was ending at some time between the first and the last of
// some times.
func (f *fleet) hasStopBetween(times []time.Time) bool {
	first, last := slices.MinFunc(times, time.Time.Compare), slices.MaxFunc(times, time.Time.Compare)
	return slices.ContainsFunc(f.stops, func(p period) bool { return first.Before(p.to) && last.After(p.from) })
}

// trace returns when and where a body ran, and the history of its chain if it belongs to one.
func (f *fleet) trace(id string) string {
	f.t.Helper()
	var text strings.Builder
	for _, line := range readLines(f.t, f.ledger.path+".trace") {
		if strings.HasPrefix(line, id+" ") {
			fmt.Fprintln(&text, line)
		}
	}
	nd, err := node.Open(f.t.Context(), node.Config{URL: f.url, ReadOnly: true})
	if err != nil {
		return text.String() + err.Error()
	}
	defer nd.Close()
	key, _, _ := strings.Cut(id, "#")
	h, err := nd.Backend().History(f.t.Context(), api.HistoryRequest{Target: targetOf("chain/" + key), After: -1})
	for _, e := range h.Events {
		fmt.Fprintf(&text, "  %d %s %s %s %s\n", e.Seq, e.At.Std().UTC().Format(time.RFC3339Nano), e.Kind, e.Name, e.ID)
	}
	if err != nil {
		fmt.Fprintln(&text, err)
	}
	return text.String()
}

// verifyRuns checks all histories, and that the store has all results that clients got. It returns
// the number of completed runs by the name of the workflow. The name of a task is empty.
func (f *fleet) verifyRuns(ran map[string]int) map[string]int {
	f.t.Helper()
	nd, err := node.Open(f.t.Context(), node.Config{URL: f.url, ReadOnly: true})
	if err != nil {
		f.t.Fatal(err)
	}
	defer nd.Close()
	b := nd.Backend()
	runs := map[string]int{}
	req := api.ListRequest{Tenant: model.DefaultTenant, AllRuns: true, Limit: 1000}
	for {
		page, err := b.List(f.t.Context(), req)
		if err != nil {
			f.t.Fatal(err)
		}
		for i := range page.Executions {
			d := &page.Executions[i]
			kind := d.Start.Address.Type
			if d.Outcome.Status == model.Completed {
				runs[kind]++
			} else if kind != "marathon" || d.Outcome.Status != model.Continued {
				f.t.Errorf("%s is %s: %v %v", d.Start.Address, d.Outcome.Status, d.Reasons, d.Outcome.Failure)
			}
			verifyHistory(f.t, b, d, ran)
		}
		if req.Cursor = page.Cursor; req.Cursor == "" {
			break
		}
	}

	a := audit{t: f.t, url: f.url, ledger: f.ledger}
	for _, line := range f.ledger.answers(f.t) {
		a.answer(b, strings.Fields(line))
	}
	return runs
}

// verifyEntities checks the sums of the counters of visits and of the accounts.
func (f *fleet) verifyEntities(runs map[string]int) {
	f.t.Helper()
	s := f.sites[0]
	app, err := perdure.Dialer{Token: clusterKey}.Dial(f.t.Context(), "grpc://"+s.addresses[s.current])
	if err != nil {
		f.t.Fatal(err)
	}
	defer app.Close()
	ctx, cancel := context.WithTimeout(f.t.Context(), mixedLimit)
	defer cancel()
	c := app.With(ctx)

	counters := perdure.NewEntity[int]("counter")
	visits, want := 0, runs["visit"]
	for n := range f.workers {
		count, _, err := counters.Get(c, fmt.Sprint("visits-w", n))
		if err != nil {
			f.t.Fatal(err)
		}
		visits, want = visits+count, want+runs[fmt.Sprint("visit-w", n)]
	}
	if visits != want || want == 0 {
		f.t.Errorf("the workers have %d visits, want %d", visits, want)
	}

	accounts := perdure.NewEntity[struct{ Cents, Bookings int }]("account")
	cents, bookings := 0, 0
	for info, err := range app.Entities().List(ctx, "account", "") {
		if err != nil {
			f.t.Fatal(err)
		}
		a, _, err := accounts.Get(c, info.Ref.Key)
		if err != nil {
			f.t.Fatal(err)
		}
		cents, bookings = cents+a.Cents, bookings+a.Bookings
	}
	if want := 2 * runs["transfer"]; cents != 0 || bookings != want || want == 0 {
		f.t.Errorf("the accounts have %d cents and %d bookings, want 0 and %d", cents, bookings, want)
	}
}
