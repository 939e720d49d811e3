package replay_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// op is one statement of a random program.
type op struct {
	Kind string
	N    int // chooses among variants
	M    int
	Body []op
}

// leaves are statements that contain no other statements. blocks contain some.
var (
	leaves = []string{
		"step", "step", "step", "input", "keyed", "fails", "retried", "recv", "recvT", "try", "sleep", "select", "all", "race", "firstn", "cancel",
		"promise", "now", "child", "watch", "send", "uuid", "loop", "limited", "version", "label", "settled", "settled", "settled", "state", "state", "updates", "task", "task", "call", "call", "callgo",
	}
	blocks = []string{"par", "par", "race-par", "scope", "detached", "cleanup", "handle", "handle", "interrupt", "lock", "lock"}
)

func genProgram(depth int) *rapid.Generator[[]op] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
		kinds := leaves
		if depth > 0 {
			kinds = append(append([]string(nil), leaves...), append(blocks, blocks...)...)
		}
		o := op{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), N: rapid.IntRange(0, 3).Draw(t, "n"), M: rapid.IntRange(1, 3).Draw(t, "m")}
		for _, b := range blocks {
			if o.Kind == b {
				o.Body = genProgram(depth-1).Draw(t, "body")
			}
		}
		return o
	}), 1, 4)
}

func (o op) String() string {
	if o.Body == nil {
		return fmt.Sprintf("%s(%d,%d)", o.Kind, o.N, o.M)
	}
	return fmt.Sprintf("%s(%d,%d){%s}", o.Kind, o.N, o.M, text(o.Body))
}

func text(ops []op) string {
	var s []string
	for _, o := range ops {
		s = append(s, o.String())
	}
	return strings.Join(s, " ")
}

// interp runs a program and writes down everything that it sees.
type interp struct {
	e     *engine
	trace []string
	left  int // number of locks that the code has released
}

func (p *interp) log(who, format string, args ...any) {
	p.trace = append(p.trace, who+" "+fmt.Sprintf(format, args...))
}

func (p *interp) run(x replay.Ctx, who string, ops []op) error {
	var failure error
	for i, o := range ops {
		me := fmt.Sprintf("%s/%d", who, i)
		p.log(me, "begin %s err=%v", o.Kind, x.Err())
		if err := p.one(x, me, o); err != nil {
			p.log(me, "error %v", err)
			failure = err
		}
	}
	return failure
}

// name returns one of two names, so that equal steps occur in parallel branches and in sequence.
func name(n int) string { return string(rune('a' + n%2)) }

func (p *interp) checkGot(me string, f *replay.Future, err error) error {
	if err == nil {
		p.log(me, "got %q %v", f.Payload().Data, f.Value())
	}
	return err
}

func (p *interp) one(x replay.Ctx, me string, o op) error {
	e := p.e
	sig := fmt.Sprintf("s%d", o.N%2)
	switch o.Kind {
	case "step", "input", "keyed", "fails", "retried", "limited", "settled", "task":
		out, err := x.Step(p.stepOf(o))
		p.log(me, "step %q", out.Data)
		var f *model.Failure
		if err != nil && !errors.As(err, &f) && !errors.Is(err, replay.ErrCanceled) && !errors.Is(err, replay.ErrTimeout) {
			e.problem("error of a step is %T", err)
		}
		return err
	case "loop":
		for i := range o.M {
			out, err := x.Step(e.stepOf("loop"))
			p.log(me, "%d %q", i, out.Data)
			if err != nil {
				return err
			}
		}
	case "recv":
		f := x.Next(sig)
		return p.checkGot(me, f, x.Get(f))
	case "recvT":
		y := x.WithTimeout(time.Minute)
		f := y.Next(sig)
		return p.checkGot(me, f, y.Get(f))
	case "try":
		v, ok := x.TryReceive(sig)
		p.log(me, "try %q %v", v.Data, ok)
	case "sleep":
		return x.Sleep(time.Duration(o.N) * time.Minute)
	case "select":
		fs := []*replay.Future{x.Timer(time.Hour), x.Next(sig), x.StepFuture(e.stepOf(name(o.N)))}
		for range o.M {
			i, err := x.Select(fs)
			p.log(me, "first %d %v", i, err)
			if err != nil {
				return err
			}
			if err := p.checkGot(me, fs[i], x.Get(fs[i])); err != nil {
				return err
			}

			if i == 1 {
				fs[1] = x.Next(sig)
			} else {
				fs = append(fs[:i:i], fs[i+1:]...)
			}

			if len(fs) < 2 || i == 0 {
				break
			}
		}
	case "all", "race", "firstn", "selectn", "cancel":
		return p.futures(x, me, o)
	case "promise":
		y := x.WithTimeout(time.Minute)
		f := y.Promise("p")
		return p.checkGot(me, f, y.Get(f))
	case "version":
		// The code asks for the same range of versions wherever it asks for a change. The worker
		// rightly blocks code that supports fewer versions in one place than in another.
		p.log(me, "version %d", x.Version(fmt.Sprintf("c%d", o.N), 0, o.N))
	case "label":
		return x.SetLabel(fmt.Sprintf("l%d", o.N%2), fmt.Sprint(o.M-1))
	case "now":
		p.log(me, "now %v", x.Now())
	case "uuid":
		p.log(me, "%s %d", x.UUID(), x.Rand().IntN(1000))
	case "child":
		out, err := x.RunChild(replay.Child{Workflow: "kid", Input: payload(fmt.Sprint(o.N)), Keyed: o.N%2 == 0, Key: "k" + fmt.Sprint(o.N)})
		p.log(me, "child %q", out.Data)
		return err
	case "watch":
		a, err := x.StartChild(replay.Child{Workflow: "kid", Input: payload(fmt.Sprint(o.N))})
		if err != nil {
			return err
		}
		f := x.Outcome(a, model.RunID{})
		g := x.Outcome(model.Address{Tenant: "default", Type: "other", Key: "o"}, model.RunID{})
		i, err := x.Race([]*replay.Future{f, g})
		p.log(me, "watched %d", i)
		return err
	case "send":
		_, err := x.Send(model.Message{Kind: model.MessageSignal, To: model.Address{Tenant: "default", Type: "other", Key: "o"}, Name: sig, Input: payload("1")}, "", nil)
		return err
	case "state":
		had, ok := x.State(sig)
		p.log(me, "state %q %v", had.Data, ok)
		v := payload(me)
		if o.M == 3 {
			v = model.Payload{}
		}
		return x.SetState(sig, v, nil)
	case "updates":
		return x.WaitUpdates()
	case "handle":
		x.HandleUpdate(fmt.Sprintf("u%d", o.N%2), replay.UpdateHandler{
			Serve: func(y replay.Ctx, in model.Payload) (model.Payload, error) {
				if string(in.Data) == "bad" {
					return model.Payload{}, errors.New("refused")
				}
				p.log(me+"?", "update %q", in.Data)
				err := p.run(y, me+"?", o.Body)
				return payload("answer of " + me), err
			},
		})
	case "interrupt":
		x.OnInterrupt(func(y replay.Ctx, why string) error {
			p.log(me+"^", "interrupted: %s", why)
			return p.run(y, me+"^", o.Body)
		})
	case "lock":
		entered := false
		err := x.Lock(lockSets[o.N%len(lockSets)], func(y replay.Ctx) error {
			entered = true
			token, ok := y.Fence(lockSets[o.N%len(lockSets)][0])
			p.log(me, "locked %d %v", token, ok)
			return p.run(y, me+"L", o.Body)
		})
		if entered {
			p.left++
		}
		return err
	case "call":
		out, err := x.Send(callOf(o), "", nil)
		p.log(me, "called %q", out.Data)
		return err
	case "callgo":
		f := x.SendFuture(callOf(o), "", nil)
		if _, err := x.Step(e.stepOf(name(o.N))); err != nil {
			return err
		}
		return p.checkGot(me, f, x.Get(f))
	case "par", "race-par":
		return p.parallel(x, me, o)
	case "scope":
		return p.run(x.WithTimeout(time.Duration(o.N+1)*time.Minute), me, o.Body)
	case "detached":
		return p.run(x.Detached(), me, o.Body)
	case "machine":
		return p.machine(x, me, o)
	case "cleanup":
		x.Cleanup(o.N%2 == 0, func(y replay.Ctx) error { return p.run(y, me+"!", o.Body) })
	}

	return nil
}

func (p *interp) stepOf(o op) *replay.Step {
	switch o.Kind {
	case "input":
		return p.e.stepOf(name(o.N), input(fmt.Sprintf(`{"n":%d}`, o.M)))
	case "keyed":
		return p.e.stepOf(name(o.N), func(s *replay.Step) { s.Key, s.Keyed = fmt.Sprint(o.M), true })
	case "fails":
		return p.e.stepOf("f"+name(o.N), failingStep(99, true))
	case "retried":
		return p.e.stepOf("r"+name(o.N), failingStep(o.M, false), func(s *replay.Step) { s.Policy = &replay.Policy{MaxAttempts: 3} })
	case "settled":
		opts := []func(*replay.Step){p.e.settleStep, func(s *replay.Step) { s.Policy = &replay.Policy{MaxAttempts: 2} }}
		switch o.N {
		case 1:
			opts = append([]func(*replay.Step){failingStep(o.M, false)}, opts...)
		case 2:
			opts = append([]func(*replay.Step){failingStep(99, true)}, opts...)
		}
		return p.e.stepOf("tx"+name(o.M), opts...)
	case "task":
		return task("q"+name(o.N), input(fmt.Sprint(o.M)))
	case "limited":
		return p.e.stepOf(name(o.N), func(s *replay.Step) { s.AttemptTimeout = time.Hour })
	}

	return p.e.stepOf(name(o.N))
}

func (p *interp) futures(x replay.Ctx, me string, o op) error {
	var fs []*replay.Future
	for i := range o.M {
		if i == o.N {
			fs = append(fs, x.StepFuture(p.e.stepOf("f", failingStep(99, true))))
			continue
		}
		if o.M == 3 {
			fs = append(fs, x.StepFuture(p.e.stepOf("tx"+name(i), p.e.settleStep)))
			continue
		}
		if o.N == 0 || o.N == 2 {
			fs = append(fs, x.StepFuture(task(name(i))))
			continue
		}
		fs = append(fs, x.StepFuture(p.e.stepOf(name(i))))
	}

	if o.N == 2 {
		fs = append(fs, x.Next("s0"))
	}

	switch o.Kind {
	case "all":
		err := x.All(fs)
		for i, f := range fs {
			p.log(me, "%d %v %q", i, f.Done(), f.Payload().Data)
		}
		return err
	case "race":
		i, err := x.Race(fs)
		p.log(me, "winner %d", i)
		return err
	case "selectn":
		left := fs
		for len(left) > 0 {
			i, err := x.Select(left)
			p.log(me, "next is %d of %d, %v", i, len(left), err)
			if err != nil {
				return err
			}
			if err := p.checkGot(me, left[i], x.Get(left[i])); err != nil {
				return err
			}
			left = append(left[:i:i], left[i+1:]...)
		}
		return nil
	case "firstn":
		is, err := x.FirstN(1+o.N%len(fs), fs)
		p.log(me, "first %v", is)
		return err
	}

	err := x.Cancel(fs[0])
	p.log(me, "cancelled %v, then %v", err, x.Get(fs[0]))
	return x.Wait(fs)
}

func (p *interp) parallel(x replay.Ctx, me string, o op) error {
	var fs []*replay.Future
	for i := range o.M {
		who := fmt.Sprintf("%s.%d", me, i)
		fs = append(fs, x.Go(func(y replay.Ctx) (any, error) { return who, p.run(y, who, o.Body) }))
	}
	if o.Kind == "race-par" {
		i, err := x.Race(fs)
		p.log(me, "winner %d", i)
		return err
	}
	err := x.Wait(fs)
	p.log(me, "joined")
	return err
}
