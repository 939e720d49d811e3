package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Sleep parks until d has passed or the scope ends.
func (x Ctx) Sleep(d time.Duration) error {
	if err := x.enter("Sleep"); err != nil {
		return err
	}
	if err := x.scope.endError(); err != nil || d <= 0 {
		return err
	}
	a := x.askTimer(&identity{kind: askTimer}, d)
	x.co.single[0] = &a.fut
	if err := x.await(waitAny, 0, x.co.single[:]); err != nil {
		x.co.m.withdraw(a)
		return err
	}
	return a.fut.err
}

// Timer returns a durable timer as a future.
func (x Ctx) Timer(d time.Duration) *Future { return x.timer(&identity{kind: askTimer}, d) }

func (x Ctx) timer(id *identity, d time.Duration) *Future {
	if err := x.enter("Timer"); err != nil {
		return failedFuture(err)
	}
	if err := x.scope.endError(); err != nil {
		return failedFuture(err)
	}
	a := x.askTimer(id, max(d, 0))
	return a.fut.bind(x.scope)
}

// askTimer asks for a timer. The identity of a timer has only its key, if it has one, and its
// occurrence, but not its duration. So if a deploy changes the duration in the code, a run that
// waits for the timer keeps the stored time.
func (x Ctx) askTimer(id *identity, d time.Duration) *ask {
	m := x.co.m
	a := m.newAsk(x.co.path, id)
	a.fut.kind = futureTimer
	a.due, a.length = m.clock().Add(d), d
	m.serveEarly(a)
	if !a.fut.done {
		m.request(a, m.startTimer(a.id, a.due, len(m.ahead) > 0))
	}
	return a
}

// startTimer returns the command for a timer. If the code has run ahead of the history, the due
// time is a guess. In that case the engine computes the due time when it records the turn, from the
// time of that record.
func (m *machine) startTimer(id string, due model.Time, guessed bool) model.Command {
	c := model.Command{Kind: model.CommandStartTimer, Event: model.Event{ID: id}, Delay: max(due.Sub(m.clock()), time.Microsecond)}
	if !guessed {
		c.Event.Due = due
	}

	return c
}

// Child is the start of another execution by a workflow.
type Child struct {
	Workflow string
	// Key is the key of the execution. If a child has no key, it gets a key that is derived from
	// the run and the step.
	Key   string
	Keyed bool
	// Step identifies the start. If Step is empty, the key or the input identifies it.
	Step string
	// Caller is the program counter of user code; 0 to look for it.
	Caller    uintptr
	Input     model.Payload
	Identity  []byte // as StepInput.Identity
	Seal      Seal
	Normalize Normalize
	Policy    model.ParentClosePolicy
	Reuse     model.ReusePolicy
	Labels    []model.Label
	Task      *model.TaskSpec // set for a task that stands alone
	Terms     *model.Terms
}

// StartChild starts an execution as a child and returns its address. It does not wait.
func (x Ctx) StartChild(c Child) (model.Address, error) {
	_, a, err := x.startChild("Start", c)
	return a, err
}

// RunChild starts an execution as a child and waits for its result. If the scope ends first, the
// code gives up on the child.
func (x Ctx) RunChild(c Child) (model.Payload, error) {
	a, _, err := x.startChild("Run", c)
	if err != nil {
		return model.Payload{}, err
	}
	x.co.single[0] = &a.fut
	if err := x.await(waitAny, 0, x.co.single[:]); err != nil {
		x.co.m.cancel(&a.fut)
		return model.Payload{}, err
	}
	return a.fut.out, a.fut.err
}

// startChild asks for a child. It determines the identity and the address of the child, and the
// reuse policy, which lets a retried or repeated run start a failed child again.
func (x Ctx) startChild(call string, c Child) (*ask, model.Address, error) {
	if err := x.enter(call, "of workflow", c.Workflow); err != nil {
		return nil, model.Address{}, err
	}
	if err := x.scope.endError(); err != nil {
		return nil, model.Address{}, err
	}

	if call == "Run" {
		if err := x.mayWait(model.Address{Type: c.Workflow, Key: c.Key}); err != nil {
			return nil, model.Address{}, err
		}
	}

	m := x.co.m
	id := identity{kind: askChild, name: c.Workflow, key: c.Key, keyed: c.Keyed, input: c.Input.Data, hashed: !c.Keyed, caller: c.Caller}
	if c.Identity != nil {
		id.input = c.Identity
	}
	if c.Step != "" {
		id.key, id.keyed, id.hashed = c.Step, true, false
	}
	a := m.newAsk(x.co.path, &id)
	a.seal = c.Seal

	if id.hashed {
		m.learn(askChild, c.Workflow, c.Normalize)
		m.foresee(a)
	}

	a.fut.kind = futureChild
	self := m.r.start
	key := c.Key

	if !c.Keyed {
		run := self.IdentityRun()
		sum := sha256.Sum256([]byte(string(run[:]) + a.id))
		key = hex.EncodeToString(sum[:16])
	}

	a.target = model.Address{Tenant: self.Address.Tenant, Type: c.Workflow, Key: key}
	if e := m.childInPast(a.id); e != nil {
		if !c.Keyed {
			a.target = e.Target // its key was derived from the run that the past comes from
		}
		if e.Blank() {
			c.Reuse = max(c.Reuse, model.ReuseIfFailed) // the child failed: start it again
		}
	} else if !c.Keyed && !self.Identity.IsZero() {
		// The retried run may have started a child that is not in its past. A failure of that child
		// must not fail the run again.
		c.Reuse = max(c.Reuse, model.ReuseIfFailed)
	}

	if self.Attempt > 1 {
		// A child that failed or was cancelled together with the attempt before must not fail this
		// attempt as well.
		c.Reuse = max(c.Reuse, model.ReuseIfFailed)
	}
	m.adopt(a)
	m.serveEarly(a)

	if !a.recorded {
		m.request(a, model.Command{Kind: model.CommandStartChild, Reuse: c.Reuse, Labels: c.Labels, Terms: c.Terms, Event: model.Event{
			Kind: model.EventChildStarted, ID: a.id, Name: c.Workflow, Target: a.target, Input: c.Input, Policy: c.Policy, Position: a.position, Task: c.Task,
		}})
	}

	return a, a.target, nil
}

// childInPast looks for the start of a child in the past that the run began with. It returns that
// event, or the placeholder that replaced it (see model.Blank); nil if there is neither.
func (m *machine) childInPast(id string) *model.Event {
	past := m.r.start.Carried
	i := slices.IndexFunc(past, func(e model.Event) bool {
		return e.ID == id && (e.Kind == model.EventChildStarted || e.Blank() && !e.Target.IsZero())
	})
	if i < 0 {
		return nil
	}
	return &past[i]
}

// HasChild reports whether the run has started the execution as a child, or has asked for that.
func (x Ctx) HasChild(target model.Address) bool {
	x.must("Poll")
	return x.co.m.children[target] != nil
}

// adopt remembers a child by its address.
func (m *machine) adopt(a *ask) {
	if m.children == nil {
		m.children = map[model.Address]*ask{}
	}
	m.children[a.target] = a
}

// Outcome returns the result of another execution as a future. The result of a child arrives
// without a request. For another execution, Outcome sends a watch.
func (x Ctx) Outcome(target model.Address, run model.RunID) *Future {
	if err := x.enter("Result"); err != nil {
		return failedFuture(err)
	}
	m := x.co.m
	if a := m.children[target]; a != nil && run.IsZero() {
		return &a.fut
	}

	if err := x.scope.endError(); err != nil {
		return failedFuture(err)
	}
	id := identity{kind: askWatch, name: target.Type, key: target.Key, keyed: true}
	if !run.IsZero() {
		id.key = joinCounted(target.Key, run.String())
	}
	a := m.newAsk(x.co.path, &id)
	a.fut.kind, a.target = futureChild, target
	m.serveEarly(a)

	if !a.recorded && !a.fut.done {
		m.request(a, model.Command{Kind: model.CommandWatch, Event: model.Event{
			Kind: model.EventChildStarted, ID: a.id, Name: target.Type, Target: target, Run: run, Position: a.position,
		}})
	}

	return &a.fut
}

// Send sends a message to another execution or to an entity, and waits for the answer. For a
// signal, a settlement or an order, the answer is that it took effect. For an update or a call, it
// is the answer of the code there. key distinguishes equal sends; it may be empty.
func (x Ctx) Send(msg model.Message, key string, seal Seal) (model.Payload, error) {
	a, err := x.askAnswer("Send", &msg, key, seal)
	if err != nil {
		return model.Payload{}, err
	}
	x.co.single[0] = &a.fut
	if err := x.await(waitAny, 0, x.co.single[:]); err != nil {
		x.co.m.cancel(&a.fut)
		return model.Payload{}, err
	}
	return a.fut.out, a.fut.err
}

// SendFuture is Send with the answer as a future.
func (x Ctx) SendFuture(msg model.Message, key string, seal Seal) *Future {
	a, err := x.askAnswer("Go", &msg, key, seal)
	if err != nil {
		return failedFuture(err)
	}
	return a.fut.bind(x.scope)
}

// askAnswer sends a message that will be answered.
func (x Ctx) askAnswer(call string, msg *model.Message, key string, seal Seal) (*ask, error) {
	if err := x.enter(call, msg.Kind.String(), msg.Name); err != nil {
		return nil, err
	}
	if err := x.scope.endError(); err != nil {
		return nil, err
	}
	in, err := x.callIn(msg)
	if err != nil {
		return nil, err
	}

	m := x.co.m
	id := identity{kind: askSend, name: msg.Kind.String(), keyed: true, key: joinCounted(msg.To.Type, msg.To.Key, msg.Name, key)}
	if msg.Kind == model.MessageUpdate && x.heldSection() != nil && !m.isRecorded(x.co.path, &id) {
		return nil, fault.New(fault.Invalid, "update %s of execution %s inside Lock: its code may need what is locked here, so call it outside", msg.Name, addressText(msg.To))
	}
	a := m.newAsk(x.co.path, &id)
	a.fut.kind, a.fut.name = futureAnswer, strings.TrimSpace(msg.Kind.String()+" "+msg.Name)
	a.target, a.seal = msg.To, seal
	e := model.Event{Kind: model.EventSent, ID: a.id, Name: msg.Name, Target: msg.To, Position: a.position}

	if in != nil {
		in.noteCall(a)
		msg.Section, e.Section = in.ask.id, in.ask.id
	}

	m.serveEarly(a)
	if !a.recorded {
		m.request(a, model.Command{Kind: model.CommandSend, Message: msg, Event: e})
	}
	return a, nil
}
