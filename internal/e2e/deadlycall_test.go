package e2e_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// envDeadly has the address of the server for TestDeadlyWorkerProcess.
const envDeadly = "PERDURE_E2E_DEADLY"

// deadlyExit is the exit code of a worker that a call has ended.
const deadlyExit = 34

var (
	deadlyEnd = perdure.DeclareOperation[int, int]("deadly", "end")
	deadlyAdd = perdure.DeclareOperation[int, int]("deadly", "add")
)

// TestDeadlyWorkerProcess is a remote worker. One of its operations ends the process.
func TestDeadlyWorkerProcess(t *testing.T) {
	addr := os.Getenv(envDeadly)
	if addr == "" {
		t.Skip("it is a process of TestCallThatEndsRemoteWorkers")
	}
	deadly := perdure.NewEntity[int]("deadly")
	perdure.NewOperation(deadly, "end", func(perdure.EntityCtx, *int, int) (int, error) {
		os.Exit(deadlyExit)
		return 0, nil
	})
	perdure.NewOperation(deadly, "add", func(_ perdure.EntityCtx, s *int, n int) (int, error) {
		*s += n
		return *s, nil
	})
	if _, err := perdure.Dial(t.Context(), addr, deadly); err != nil {
		t.Fatal(err)
	}
	select {}
}

// deadlyWorkers starts a worker process whenever the last one has ended, until ctx ends. The
// returned function ends the last process, and returns how many processes a call has ended.
func deadlyWorkers(t *testing.T, addr string) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	n, done := 0, make(chan struct{})

	go func() {
		defer close(done)
		for ctx.Err() == nil {
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestDeadlyWorkerProcess$")
			cmd.Env = append(os.Environ(), envDeadly+"="+addr)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Error(err)
				break
			}
			_, _ = io.Copy(io.Discard, out) // until the process ends
			var exit *exec.ExitError
			if errors.As(cmd.Wait(), &exit) && exit.ExitCode() == deadlyExit {
				n++
			}
		}
	}()

	stop = func() int {
		cancel()
		<-done
		return n
	}
	t.Cleanup(func() { stop() })
	return stop
}

// An operation ends each remote worker that runs it. After the third worker the caller gets a
// failure, the call becomes a dead letter, and other calls of the key continue.
func TestCallThatEndsRemoteWorkers(t *testing.T) {
	t.Parallel()
	server, err := node.Serve(t.Context(), node.ServerConfig{
		Node: node.Config{URL: "memory:"}, Listen: "127.0.0.1:0", Authenticator: authn.Open{Tenant: model.DefaultTenant}, Grace: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Log(err)
		}
	})
	addr := "grpc://" + server.Addr().String()
	app, err := perdure.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})

	c := caller(t, app)
	stop := deadlyWorkers(t, addr)
	if n, err := deadlyAdd.Call(c, "k", 1); n != 1 || err != nil {
		t.Fatalf("the first call: %d, %v", n, err)
	}
	_, err = deadlyEnd.Call(c, "k", 0)
	if err == nil || !strings.Contains(err.Error(), "3 workers disappeared") {
		t.Errorf("the caller of the operation that ends its worker got: %v", err)
	}
	if n, err := deadlyAdd.Call(c, "k", 1); n != 2 || err != nil {
		t.Errorf("the next call: %d, %v", n, err)
	}
	if n := stop(); n != 3 {
		t.Errorf("the call ended %d workers, want 3", n)
	}

	var letters []perdure.DeadLetter
	for l, err := range app.DeadLetters(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		letters = append(letters, l)
	}
	if len(letters) != 1 || letters[0].Kind != "call" || letters[0].Target.Key != "k" || !strings.Contains(letters[0].Reason, "3 workers disappeared") {
		t.Errorf("dead letters %+v", letters)
	}
}
