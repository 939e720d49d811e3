package flovyn_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/pgtest"
)

// Environment of the server that a test kills.
const (
	envVictim = "PERDURE_FLOVYN_STORE"
	envListen = "PERDURE_FLOVYN_LISTEN"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(envVictim); url != "" {
		fmt.Println(victim(url, os.Getenv(envListen)))
		os.Exit(1)
	}
	os.Exit(pgtest.Main(m).Run())
}

// victimLease is how long other processes wait before they take over from a killed process.
const victimLease = 2 * time.Second

// victim serves until the process is killed, or the test that started it ends.
func victim(url, listen string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the test
		os.Exit(1)
	}()

	s, err := startServer(context.Background(), url, listen, victimLease)
	if err != nil {
		return err
	}
	fmt.Println("up")
	return <-s.Failed()
}

// startVictim starts a server in a process of its own and returns how to kill it.
func startVictim(t *testing.T, url, listen string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0]) //nolint:noctx // the test kills it
	cmd.Env = append(os.Environ(), envVictim+"="+url, envListen+"="+listen)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "up" {
		t.Fatalf("the server says %q", lines.Text())
	}

	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// TestKilledServer kills the process of the server again and again while workers are busy. Every
// workflow ends, and each of its steps is in its log once.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	const count = 40
	url := "file:" + filepath.Join(t.TempDir(), "flovyn.db")
	listen := freeAddress(t)
	kill := startVictim(t, url, listen)
	defer func() { kill() }()

	r := &rig{t: t, queue: "killed", key: workerKey}
	var err error
	r.conn, err = grpc.NewClient(listen, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, MaxDelay: 200 * time.Millisecond},
	}))
	r.must(err)
	defer r.conn.Close()
	r.flows, r.tasks = pb.NewWorkflowDispatchClient(r.conn), pb.NewTaskExecutionClient(r.conn)

	ctx, stop := context.WithCancel(r.ctx())
	var executed, ended atomic.Int64
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() { workFlows(ctx, r, func() { ended.Add(1) }) })
		workers.Go(func() { workTasks(ctx, r, &executed) })
	}
	defer workers.Wait()
	defer stop()

	// A client repeats a start whose answer it did not get.
	ids := make([]string, count)
	for i := range ids {
		key := "start " + strconv.Itoa(i)
		for ids[i] == "" {
			reply, err := r.flows.StartWorkflow(r.ctx(), &pb.StartWorkflowRequest{OrgId: orgID, WorkflowKind: "killed", Queue: r.queue, IdempotencyKey: &key})
			if err == nil {
				ids[i] = reply.GetWorkflowExecutionId()
			}
		}
		if i%10 == 5 {
			kill()
			kill = startVictim(t, url, listen)
		}
	}

	for _, id := range ids {
		log := r.log(id)
		for !strings.Contains(log, "WORKFLOW_COMPLETED") {
			if t.Context().Err() != nil {
				t.Fatal("the test has ended")
			}
			time.Sleep(20 * time.Millisecond)
			log = r.log(id)
		}
		for event, want := range map[string]int{"WORKFLOW_STARTED": 1, "TASK_SCHEDULED": 2, "TASK_COMPLETED": 2, "TASK_FAILED": 0, "WORKFLOW_COMPLETED": 1} {
			if n := strings.Count(log, event); n != want {
				t.Errorf("workflow %s has %d events %s: %s", id, n, event, log)
			}
		}
	}
	t.Logf("%d tasks of %d workflows were executed", executed.Load(), count)
}

// log returns the types of the events. It is empty while the server does not answer.
func (r *rig) log(id string) string {
	reply, err := r.flows.GetEvents(r.ctx(), &pb.GetEventsRequest{WorkflowExecutionId: id})
	if err != nil {
		return ""
	}
	var types []string
	for _, e := range reply.GetEvents() {
		types = append(types, e.GetEventType())
	}
	return strings.Join(types, " ")
}

// freeAddress returns an address of this machine that is free, also while its server restarts.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := pgtest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
