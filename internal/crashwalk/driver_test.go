package crashwalk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
)

// scenario is a program, the actions of its clients, and the expected result.
type scenario struct {
	name   string
	stages []stage
	// lanes is the number of lanes of the engine; default 1.
	lanes int
	// idleAfter is how long waiting executions stay in memory; default 5 s.
	idleAfter time.Duration
	// lease is the lease of the processes; default leaseTTL.
	lease time.Duration
	// tasks configures how the processes execute tasks; the default is the default of the engine.
	tasks perdure.TaskConfig
	// selfless means that the executions need no clients once they have started: after a crash they
	// must end without clients.
	selfless bool
	// bodies is how often the body of each step runs without a fault. Each process that crashes may
	// repeat a body once.
	bodies map[string]int
	// maybe has the bodies of steps that the workflow may abandon. These bodies may run, may be cut
	// short, or may never start.
	maybe []string
	// ignore has kinds of events that depend on the order of concurrent actions. The comparison
	// with the histories without a fault leaves them out.
	ignore []model.EventKind
	// loose means that histories may differ from the histories without a fault, because they depend
	// on the order of concurrent actions. In that case only the function check checks them.
	loose bool
	// vaulted means that payloads are encrypted and offloaded.
	vaulted bool
	// check checks the result, in addition to the checks that all scenarios have.
	check func(w *world, h *histories) error
}

// stage is a part of a scenario that one version of the program serves. The stages of a scenario
// follow each other, as releases of a program do.
type stage struct {
	// processes is how many processes serve the stage at the same time; default 1.
	processes int
	// version is the version of the program, for pinned workflows.
	version string
	// define returns the code. Every process calls it.
	define func(w *world) perdure.Group
	// drive has the actions of the clients. It runs again if it fails, perhaps with other
	// processes, so all its actions must be repeatable.
	drive func(d *driver) error
	// open has executions ("workflow/key") that stay open on purpose.
	open []string
}

// alone returns the stages of a scenario that has only one stage.
func alone(define func(w *world) perdure.Group, drive func(d *driver) error) []stage {
	return []stage{{define: define, drive: drive}}
}

// ending returns a driver that starts an execution and checks its result.
//
//arch:parameters mirrors Workflow.Run
func ending[I any, O comparable](w *perdure.Workflow[I, O], in I, key string, want O, opts ...perdure.StartOption) func(d *driver) error {
	return func(d *driver) error {
		x, err := start(d, w, in, key, opts...)
		if err != nil {
			return err
		}
		return result(d, x, want)
	}
}

// driver has the processes that one drive uses.
type driver struct {
	w    *world
	ps   []*process
	ctxs []context.Context
}

// client returns a client of the first process.
func (d *driver) client() perdure.Client { return d.at(0) }

// at returns a client of process i.
func (d *driver) at(i int) perdure.Client { return d.ps[i].App.With(d.ctxs[i]) }

// ctx is the context of the first client.
func (d *driver) ctx() context.Context { return d.ctxs[0] }

// sleep waits, at most until the first process dies.
func (d *driver) sleep(v time.Duration) error { return sleep(d.ctxs[0], v) }

// once calls do, unless do has already succeeded in an earlier drive. A real client would also
// remember that its request had succeeded.
func (d *driver) once(what string, do func() error) error {
	if d.w.hasFact(what) {
		return nil
	}
	err := do()
	if err == nil {
		d.w.tell(what, "done")
	}
	return err
}

func sleep(ctx context.Context, v time.Duration) error {
	t := time.NewTimer(v)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// until waits for a condition of the world.
func (d *driver) until(what string, so func() bool) error {
	for !so() {
		if err := d.sleep(50 * time.Millisecond); err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
	return nil
}

// awaitBody waits until the body of a step has run.
func (d *driver) awaitBody(name string) error {
	return d.until("step "+name, func() bool { return d.w.times(name) > 0 })
}

// awaitEvent waits until the store has an event of that kind and name. It reads the memory store
// directly, so that the wait makes no calls that the walk counts.
func (d *driver) awaitEvent(r perdure.Ref, k model.EventKind, name string) error {
	return d.until(k.String()+" "+name, func() bool {
		h, err := d.w.read()
		return err == nil && h.count(r, k, name) > 0
	})
}

var errWrong = errors.New("wrong")

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errWrong, fmt.Sprintf(format, args...))
}

// several are the errors of several clients.
type several []error

func (s several) Error() string { return errors.Join(s...).Error() }

// Unwrap lets errors.Is find each of the errors.
func (s several) Unwrap() []error { return s }

// together runs clients at the same time.
func together(clients ...func() error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(clients))
	for i, c := range clients {
		wg.Go(func() { errs[i] = c() })
	}
	wg.Wait()

	var failed several
	for _, err := range errs {
		if err != nil {
			failed = append(failed, err)
		}
	}

	if len(failed) == 0 {
		return nil
	}
	return failed
}

// inOrder runs actions one after the other until one fails.
func inOrder(actions ...func() error) error {
	for _, do := range actions {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// acknowledge records that a client got an acknowledgement. At the end of the run, holds checks
// that the acknowledgement is true.
func (d *driver) acknowledge(what string, holds func(h *histories) error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.acks = append(d.w.acks, ack{what, holds})
}

// cause adds the reason to the error of a call whose context has ended, so that the driver can
// distinguish the death of a process from the cancellation of an execution.
func (d *driver) cause(i int, err error) error {
	if err != nil && d.ctxs[i].Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(d.ctxs[i]), err)
	}
	return err
}

// start starts an execution through the first process, and records the acknowledgement.
//
//arch:parameters mirrors Workflow.Start
func start[I, O any](d *driver, w *perdure.Workflow[I, O], in I, key string, opts ...perdure.StartOption) (perdure.Execution[O], error) {
	return startAt(d, 0, w, in, key, opts...)
}

// startAt is start through process i.
//
//arch:parameters mirrors Workflow.Start
func startAt[I, O any](d *driver, i int, w *perdure.Workflow[I, O], in I, key string, opts ...perdure.StartOption) (perdure.Execution[O], error) {
	x, err := w.Start(d.at(i), in, append(opts, perdure.RawKey(key))...)
	if err != nil {
		return x, d.cause(i, fmt.Errorf("start %s: %w", key, err))
	}
	ref := x.Ref
	d.acknowledge("start of "+ref.String(), func(h *histories) error {
		if h.of(ref) == nil {
			return wrong("execution %s was acknowledged and does not exist", ref)
		}
		return nil
	})
	return x, nil
}

// result waits for an execution and checks its value.
func result[O comparable](d *driver, x perdure.Execution[O], want O) error {
	return resultAt(d, 0, x, want)
}

func resultAt[O comparable](d *driver, i int, x perdure.Execution[O], want O) error {
	got, err := x.Result(d.at(i))
	if err != nil {
		return d.cause(i, fmt.Errorf("result of %s: %w", x, err))
	}
	if got != want {
		return wrong("result of %s is %v, want %v", x, got, want)
	}

	ref := x.Ref
	d.acknowledge("result of "+ref.String(), func(h *histories) error {
		data, _ := json.Marshal(got)
		last := h.last(ref)
		if last == nil || last.row.Outcome.Status != model.Completed || string(last.row.Outcome.Output.Data) != string(data) {
			return wrong("result %s of %s was handed out, but that is not how it stands", data, ref)
		}
		return nil
	})

	return nil
}

// ends waits for an execution that must not complete, and checks its status and a text in its
// error.
func ends[O any](d *driver, x perdure.Execution[O], want perdure.Status, text string) error {
	_, err := x.Result(d.client())
	if err != nil && d.ctx().Err() != nil {
		return d.cause(0, err)
	}
	var remote *perdure.RemoteError

	switch {
	case err == nil:
		return wrong("%s completed, want %s", x, want)
	case !errors.As(err, &remote):
		return fmt.Errorf("result of %s: %w", x, err)
	case !strings.Contains(remote.Message, text):
		return wrong("%s ended with %q, want %q in it", x, remote.Message, text)
	case (want == perdure.Canceled) != errors.Is(err, perdure.ErrCanceled):
		return wrong("%s ended with kind %q, want it to be %s", x, remote.Kind, want)
	}

	ref := x.Ref
	d.acknowledge("end of "+ref.String(), func(h *histories) error {
		if last := h.last(ref); last == nil || last.row.Outcome.Status.String() != string(want) {
			return wrong("a client got the end %[2]s of %[1]s, but the store has another one", ref, want)
		}
		return nil
	})

	return nil
}

// send sends a signal under a request id through the first process, and records the
// acknowledgement.
//
//arch:parameters mirrors Signal.Send
func send[T any](d *driver, s *perdure.Signal[T], to perdure.Ref, v T, id string) error {
	return sendAt(d, 0, s, to, v, id)
}

// sendAt is send through process i.
//
//arch:parameters mirrors Signal.Send
func sendAt[T any](d *driver, i int, s *perdure.Signal[T], to perdure.Ref, v T, id string) error {
	if err := s.Send(d.at(i), to, v, perdure.RequestID(id)); err != nil {
		return d.cause(i, fmt.Errorf("signal %s to %s: %w", id, to, err))
	}
	d.acknowledge("signal "+id, func(h *histories) error {
		if !h.hasReceived(to, id) {
			return wrong("signal %s to %s was acknowledged and is nowhere", id, to)
		}
		return nil
	})
	return nil
}

// cancel asks an execution to end. A repeated cancel may find that the execution has ended.
func cancel[O any](d *driver, x perdure.Execution[O], why string) error {
	err := x.Cancel(d.client(), why)
	if errors.Is(err, perdure.ErrConflict) {
		return nil // canceled by an earlier drive or another client; the outcome shows it
	}
	if err != nil {
		return d.cause(0, fmt.Errorf("cancel %s: %w", x, err))
	}
	ref := x.Ref
	d.acknowledge("cancel of "+ref.String(), func(h *histories) error {
		if h.count(ref, model.EventCancelRequest, "") == 0 && !h.last(ref).row.Outcome.Status.Closed() {
			return wrong("the cancel request to %s was acknowledged and is nowhere", ref)
		}
		return nil
	})
	return nil
}

// patiently repeats an action as long as the execution that it concerns is quarantined.
func (d *driver) patiently(do func() error) error {
	for {
		err := do()
		if !errors.Is(err, perdure.ErrBlocked) || !d.w.hasRefused() {
			return err
		}
		if err := d.sleep(10 * time.Second); err != nil {
			return err
		}
	}
}

// eventually repeats an action as long as the execution that it concerns does not exist, because
// the message that starts the execution is in flight.
func (d *driver) eventually(do func() error) error {
	for {
		err := do()
		if !errors.Is(err, perdure.ErrNotFound) {
			return err
		}
		if err := d.sleep(100 * time.Millisecond); err != nil {
			return err
		}
	}
}
