package perdure

import (
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/replay"
)

// machineCode returns the workflow function that runs a machine.
func machineCode[I, O any, M Machine](name string, newM func(I) M) func(WorkflowCtx, I) (O, error) {
	if newM == nil {
		return nil
	}
	return func(ctx WorkflowCtx, in I) (out O, err error) {
		p := &player{ctx: ctx, name: name, inbox: ctx.x.Inbox(), tasks: map[string]*task{}}
		end, err := p.play(newM(in))
		if err != nil {
			return out, err
		}
		if end.verb != verbComplete {
			return out, end.err
		}
		result, ok := end.out.(*O)
		if end.name != name || !ok {
			p.fail("it completes workflow %s: use the handle that it is defined with", end.name)
		}
		return *result, nil
	}
}

// player passes events to a machine and carries out its actions.
type player struct {
	ctx   WorkflowCtx
	name  string
	inbox *replay.Inbox
	tasks map[string]*task // the last task of every id
}

// task is something that a machine has started: an activity, a timer or a child.
type task struct {
	Action
	future *replay.Future
	over   bool
}

// end frees the memory of a finished task, because a machine may start very many tasks. The task
// keeps its verb, its id and its name.
func (t *task) end() {
	t.over, t.future, t.Action = true, nil, Action{verb: t.verb, id: t.id, name: t.name}
}

// play passes one event after the other to the machine, until the machine ends the run.
func (p *player) play(m Machine) (*Action, error) {
	actions := m.OnStart()
	waits := p.ctx.x
	for {
		if end := p.do(actions); end != nil {
			return end, nil
		}
		f, err := p.inbox.Next(waits)
		switch {
		case err == nil:
			actions = p.event(m, f)
		case err == ErrCanceled && p.ctx.Err() != nil: //nolint:errorlint // the error of the scope itself
			waits = waits.Detached() // the machine may continue after a cancel request
			actions = m.OnCancel(p.ctx.x.CancelReason())
		default:
			return nil, err
		}
	}
}

// do carries out the actions of a machine. It returns the action that ends the run, if there is
// one.
func (p *player) do(actions Actions) (end *Action) {
	for i := range actions {
		a := &actions[i]
		switch {
		case end != nil:
			p.fail("action %s comes after %s, which ends the run", a, end)
		case a.begin != nil:
			p.begin(a)
		case a.verb == verbCancel:
			p.withdraw(a.id)
		case a.verb != "":
			end = a
		default:
			p.fail("action %d is empty: use Schedule, StartTimer, Child, CancelAction, Complete, ContinueWith or Fail", i+1)
		}
	}

	return end
}

func (p *player) begin(a *Action) {
	if err := checkText("the id of action "+string(a.verb)+" "+a.name, a.id, maxKey); err != nil {
		p.fail("%v", err)
	}
	if t := p.tasks[a.id]; t != nil && !t.over {
		p.fail("id %q of action %s is still in use by %s: give each pending action its own id", a.id, a, t)
	}
	t := &task{Action: *a}
	t.future = a.begin(p)
	t.future.Handle = t
	p.tasks[a.id] = t
}

func (p *player) withdraw(id string) {
	t := p.tasks[id]
	switch {
	case t == nil:
		p.fail("it cancels %q, which it never started", id)
	case !t.over:
		p.inbox.Withdraw(t.future)
		t.end()
	}
}

// event passes an event to the machine and returns the actions of the machine.
func (p *player) event(m Machine, f *replay.Future) Actions {
	out := carried{p: f.Payload(), x: p.ctx.x, recorded: true}
	at, err := f.At().Std(), remote(f.Err())
	if f.At() == 0 {
		at = p.ctx.Now() // the call could not be made, so there is no event with a time
	}
	t, ok := f.Handle.(*task)
	if !ok {
		return m.OnSignal(SignalReceived{Signal: f.Name(), At: at, out: out})
	}

	t.end()
	switch {
	case t.verb == verbTimer:
		return m.OnTimerFired(TimerFired{ID: t.id, At: at})
	case t.verb == verbChild:
		return m.OnChildClosed(ChildClosed{ID: t.id, Workflow: t.name, At: at, Err: err, out: out})
	case err != nil:
		return m.OnActivityFailed(ActivityFailed{ID: t.id, Activity: t.name, At: at, Err: err})
	}

	return m.OnActivityCompleted(ActivityCompleted{ID: t.id, Activity: t.name, At: at, out: out})
}

// fail ends the execution because of a mistake in the machine. It withdraws everything that is
// pending.
func (p *player) fail(format string, args ...any) {
	p.ctx.x.Fail(Permanent(fault.New(fault.Invalid, "machine "+p.name+": "+format, args...)))
}
