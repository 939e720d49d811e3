//go:build long && linux

package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgtest"
)

// Bounds of what idle workers may cost a server.
const (
	// envIdleWorkers names the variable that sets another number of workers, for slow machines.
	envIdleWorkers = "PERDURE_IDLE_WORKERS"
	idleWorkers    = 10_000
	maxIdleMemory  = 1 << 30
	maxIdleQueries = 5 // per second
	idleTime       = 30 * time.Second
)

// 10,000 waiting workers cost a server less than a gigabyte, and cost the database no more than one
// worker.
func TestLongIdleWorkers(t *testing.T) {
	workers := idleWorkers
	if n, err := strconv.Atoi(os.Getenv(envIdleWorkers)); err == nil && n > 0 {
		workers = n
	}
	needFiles(t, uint64(workers)+1000)
	pg := pgtest.Start(t, pgtest.Options{Fsync: true, Settings: map[string]string{"log_statement": "all"}})
	t.Setenv(envServerLease, "10s") // the default of servers
	p := &process{store: pg.URL("postgres"), listen: freePort(t)}
	p.start(t)
	defer func() { p.stop(t, syscall.SIGKILL) }()

	count := perdure.NewEntity[int]("count")
	perdure.NewOperation(count, "add", func(_ perdure.EntityCtx, n *int, by int) (int, error) { *n += by; return *n, nil })
	mail := perdure.NewActivity("mail", func(_ context.Context, n int) (int, error) { return n, nil }, perdure.OnQueue("mails"))
	order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, n int) (int, error) { return mail.Run(ctx, n) })
	before := residentBytes(t, p.cmd.Process.Pid)
	apps := dialMany(t, p.listen, workers, order, mail, count)
	defer closeAll(apps)

	// Check that the workers are connected and work.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if got, err := order.Run(apps[0].With(ctx), 3); got != 3 || err != nil {
		t.Fatal(got, err)
	}

	time.Sleep(idleTime / 2) // until the memory of the connection set-up is freed
	queries := countQueries(t, pg.LogFile())
	time.Sleep(idleTime)
	perSecond := float64(countQueries(t, pg.LogFile())-queries) / idleTime.Seconds()
	first := residentBytes(t, p.cmd.Process.Pid)
	memory := awaitMemory(t, p.cmd.Process.Pid, maxIdleMemory)
	t.Logf("%d MiB shortly after all had connected", first>>20)
	t.Logf("%d idle workers: the server has %d MiB, %d MiB before them, which is %d KiB for each; %.1f queries per second",
		len(apps), memory>>20, before>>20, (memory-before)/workers>>10, perSecond)
	if memory > maxIdleMemory {
		t.Errorf("the server has %d MiB in memory, at most %d are allowed", memory>>20, maxIdleMemory>>20)
	}
	if perSecond > maxIdleQueries {
		t.Errorf("%.1f queries per second, at most %d are allowed", perSecond, maxIdleQueries)
	}
}

// needFiles skips a test that needs more open files than this process may have.
func needFiles(t *testing.T, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max < n {
		t.Skipf("this process may open %d files, and the test needs %d: raise the hard limit (ulimit -Hn)", limit.Max, n)
	}
}

// dialMany connects many apps to a server.
func dialMany(t *testing.T, listen string, n int, defs ...perdure.Definition) []*perdure.App {
	t.Helper()
	apps, errs := make([]*perdure.App, n), make(chan error, n)
	next := make(chan int)
	for range 32 {
		go func() {
			for i := range next {
				app, err := perdure.Dial(t.Context(), "grpc://"+listen, defs...)
				apps[i] = app
				errs <- err
			}
		}()
	}
	go func() {
		defer close(next)
		for i := range n {
			next <- i
		}
	}()

	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	return apps
}

func closeAll(apps []*perdure.App) {
	var all sync.WaitGroup
	for _, a := range apps {
		all.Go(func() { _ = a.Close() })
	}
	all.Wait()
}

// awaitMemory waits until a process has returned the memory of the connection set-up, and returns
// how much it still has. An idle process collects its garbage every two minutes.
func awaitMemory(t *testing.T, pid, most int) int {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		if n := residentBytes(t, pid); n <= most || time.Now().After(end) {
			return n
		}
	}
}

// residentBytes returns how much of a process is in memory.
func residentBytes(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.Atoi(strings.TrimSpace(rest[:strings.Index(rest, "kB")]))
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// countQueries returns how many statements a database has logged.
func countQueries(t *testing.T, file string) int {
	t.Helper()
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(log, []byte("LOG:  execute ")) + bytes.Count(log, []byte("LOG:  statement: "))
}
