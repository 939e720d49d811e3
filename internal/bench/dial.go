package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/heap"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// Dial is the name of Perdure behind a server: the clients, the worker and the server are three
// processes.
const Dial = "perdure-dial"

// DialPeer is Perdure behind a server.
var DialPeer = Peer{
	Workflows: openDial, Queue: openDialQueue, Entities: true,
	Only: []Workload{Throughput, Latency, Calls, Tasks},
}

// roleVariable is the environment variable with the role of a process that belongs to a system, as
// JSON.
const roleVariable = "PERDURE_BENCH_ROLE"

// role says what a process of a system does until its standard input ends.
type role struct {
	Serve *Place // runs the server of a store
	Work  string // runs the worker of the server with this URL
	Slots int    // how many tasks the worker executes at a time
}

// play runs the role of the process. It prints a line when the process is ready.
func play(ctx context.Context) error {
	var r role
	if err := json.Unmarshal([]byte(os.Getenv(roleVariable)), &r); err != nil {
		return fmt.Errorf("$%s: %w", roleVariable, err)
	}
	signal.Ignore(os.Interrupt) // the parent ends its processes itself
	if r.Serve != nil {
		return serve(ctx, *r.Serve)
	}
	return work(ctx, r)
}

// serve runs a server, and prints its address. Like perdure serve, it lets the heap grow to a floor
// before garbage is collected.
func serve(ctx context.Context, place Place) error {
	if os.Getenv("GOGC") == "" {
		defer heap.Keep(heap.ServerFloor).End()
	}
	s, err := node.Serve(ctx, node.ServerConfig{
		Node: node.Config{URL: address(place)}, Listen: "127.0.0.1:0", Tenant: model.DefaultTenant, Authenticator: authn.Open{Tenant: model.DefaultTenant},
	})
	if err != nil {
		return err
	}
	fmt.Println("grpc://" + s.Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Close(ctx)
}

// work runs a worker. Whenever tasks have started, it prints how many have started so far.
func work(ctx context.Context, r role) error {
	var begun atomic.Int64
	code, noop := newPerdureSystem(nothing), newPerdureQueue(func(int) { begun.Add(1) })
	dialer := perdure.Dialer{Tasks: perdure.TaskConfig{Slots: r.Slots}}
	app, err := dialer.Dial(ctx, r.Work, append(code.definitions(), noop.noop)...)
	if err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	fmt.Println("ready")
	for printed := int64(0); ctx.Err() == nil; time.Sleep(look) {
		if n := begun.Load(); n != printed {
			printed = n
			fmt.Println(n)
		}
	}

	return app.Close()
}

// processes are the server and the worker of a system.
type processes struct{ server, worker *process }

// startProcesses starts a server and a worker with the code of the workloads. started receives how
// many tasks have started.
func startProcesses(ctx context.Context, place Place, slots int, started func(n int)) (*processes, string, error) {
	ps := &processes{}
	var url string
	var err error
	if ps.server, url, err = startProcess(ctx, role{Serve: &place}); err != nil {
		return nil, "", fmt.Errorf("server: %w", err)
	}
	if ps.worker, _, err = startProcess(ctx, role{Work: url, Slots: slots}); err != nil {
		return nil, "", errors.Join(fmt.Errorf("worker: %w", err), ps.server.end())
	}

	go func() {
		for ps.worker.out.Scan() {
			if n, err := strconv.Atoi(ps.worker.out.Text()); err == nil {
				started(n)
			}
		}
	}()

	return ps, url, nil
}

// Processes implements Parted.
func (ps *processes) Processes() (servers, workers []int) {
	return []int{ps.server.cmd.Process.Pid}, []int{ps.worker.cmd.Process.Pid}
}

// end ends both processes, the worker first.
func (ps *processes) end() error { return errors.Join(ps.worker.end(), ps.server.end()) }

// process is a process with a role. It ends when its standard input ends.
type process struct {
	cmd   *exec.Cmd
	in    io.Closer
	out   *bufio.Scanner
	about strings.Builder // what it prints on its standard error
}

// startProcess starts this executable with a role, and returns the first line that it prints.
func startProcess(ctx context.Context, r role) (*process, string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, "", err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}

	p := &process{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), jobVariable+"=", roleVariable+"="+string(text))
	p.cmd.Stderr = &p.about
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGQUIT) }
	p.cmd.WaitDelay = 5 * time.Second
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, "", err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, "", err
	}

	p.out = bufio.NewScanner(out)
	if !p.out.Scan() {
		return nil, "", errors.Join(p.out.Err(), errors.New("the process ended"), p.end())
	}
	return p, p.out.Text(), nil
}

// end makes the process end, and waits until it has ended.
func (p *process) end() error {
	_ = p.in.Close() // the process may have ended already
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, ending(p.about.String()))
	}
	return nil
}

// dialSystem is Perdure behind a server.
type dialSystem struct {
	*perdureSystem
	*processes
}

// openDial starts a server and a worker, and connects to the server.
func openDial(ctx context.Context, place Place, _ func(int)) (System, error) {
	ps, url, err := startProcesses(ctx, place, slots, nothing)
	if err != nil {
		return nil, err
	}
	s := &dialSystem{newPerdureSystem(nothing), ps}
	if s.app, err = perdure.Dial(ctx, url); err != nil {
		return nil, errors.Join(err, ps.end())
	}
	return s, nil
}

// Close implements System.
func (s *dialSystem) Close() error { return errors.Join(s.app.Close(), s.end()) }

// dialQueue is Perdure behind a server, with an activity that has a queue.
type dialQueue struct {
	*perdureQueue
	*processes
}

// openDialQueue starts a server and a worker with slots, and connects to the server.
func openDialQueue(ctx context.Context, place Place, o QueueOptions) (Queue, error) {
	seen := 0
	ps, url, err := startProcesses(ctx, place, o.Slots, func(n int) {
		for ; seen < n; seen++ {
			o.Body(seen)
		}
	})
	if err != nil {
		return nil, err
	}

	q := &dialQueue{newPerdureQueue(o.Body), ps}
	if q.app, err = perdure.Dial(ctx, url); err != nil {
		return nil, errors.Join(err, ps.end())
	}
	return q, nil
}

// Close implements Queue.
func (q *dialQueue) Close() error { return errors.Join(q.app.Close(), q.end()) }
