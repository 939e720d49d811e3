package perdure_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/payload"
	"github.com/perdure/perdure/perduretest"
)

// diary is a program whose entity records the text of each call.
type diary struct {
	entity *perdure.Entity[[]string]
	note   *perdure.Operation[string, int]
	plan   *perdure.Operation[string, string]
	flow   *perdure.Workflow[string, string]
}

func newDiary(opts ...perdure.EntityOption) *diary {
	d := &diary{entity: perdure.NewEntity[[]string]("diary", opts...)}
	d.note = perdure.NewOperation(d.entity, "note", func(_ perdure.EntityCtx, s *[]string, line string) (int, error) {
		*s = append(*s, line)
		return len(*s), nil
	})

	d.plan = perdure.NewOperation(d.entity, "plan", func(ctx perdure.EntityCtx, s *[]string, line string) (string, error) {
		*s = append(*s, "plan")
		exec, err := d.note.SendLater(ctx, ctx.Key(), line, perdure.StartDelay(time.Hour))
		return exec.Ref.Key, err
	})

	d.flow = perdure.NewWorkflow("planner", func(ctx perdure.WorkflowCtx, line string) (string, error) {
		first, err := d.note.SendLater(ctx, "k", line+" 1", perdure.StartDelay(time.Hour))
		if err != nil {
			return "", err
		}
		second, err := d.note.SendLater(ctx, "k", line+" 2", perdure.StartAt(ctx.Now().Add(2*time.Hour)))
		if err != nil || first == second {
			return "", errors.Join(err, errors.New("two calls are one"))
		}
		return second.Ref.Key, first.Cancel(ctx, "no")
	})

	return d
}

func (d *diary) read(t *testing.T, c perdure.Client) string {
	t.Helper()
	lines, _, err := d.entity.Get(c, "k")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, ",")
}

// The engine makes each call once and at its time, for every kind of sender, even if the process is
// killed before that time. It never makes a call that was cancelled in time.
func TestSendLater(t *testing.T) {
	t.Parallel()
	d := newDiary()
	perduretest.Run(t, perdure.Group{d.entity, d.flow}, func(t *testing.T, env *perduretest.Env) {
		c, began := env.With(), time.Now()
		must := func(exec perdure.Execution[perdure.Void], err error) perdure.Execution[perdure.Void] {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return exec
		}
		must(d.note.SendLater(c, "k", "late", perdure.StartDelay(3*time.Hour)))
		for range 2 { // the same call twice
			must(d.note.SendLater(c, "k", "named", perdure.StartDelay(30*time.Minute), perdure.RawKey("n")))
			must(d.note.SendLater(c, "k", "asked", perdure.StartDelay(40*time.Minute), perdure.RequestID("r")))
		}
		withdrawn := must(d.note.SendLater(c, "k", "never", perdure.StartDelay(time.Minute)))
		if err := withdrawn.Cancel(c, "not needed"); err != nil {
			t.Error(err)
		}
		if _, err := d.plan.Call(c, "k", "planned"); err != nil {
			t.Error(err)
		}
		if _, err := d.flow.Run(c, "flow", perdure.RawKey("f")); err != nil {
			t.Error(err)
		}

		env.Restart()
		c = env.With()
		for _, at := range []struct {
			after time.Duration
			want  string
		}{
			{29 * time.Minute, "plan"},
			{31 * time.Minute, "plan,named"},
			{59 * time.Minute, "plan,named,asked"},
			{61 * time.Minute, "plan,named,asked,planned"},
			{121 * time.Minute, "plan,named,asked,planned,flow 2"},
			{181 * time.Minute, "plan,named,asked,planned,flow 2,late"},
		} {
			time.Sleep(at.after - time.Since(began))
			env.Settle()
			if got := d.read(t, c); got != at.want {
				t.Errorf("after %s: %s, want %s", at.after, got, at.want)
			}
		}

		if _, err := withdrawn.Result(c); !errors.Is(err, perdure.ErrCanceled) {
			t.Errorf("the result of a withdrawn call is %v", err)
		}
		made := perdure.LaterCall(perdure.RawKey("n"))
		if _, err := made.Result(c); err != nil {
			t.Errorf("the result of a call that was made is %v", err)
		}
		if err := made.Cancel(c, "too late"); !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("a cancel after the call returns %v", err)
		}
	})
}

// SendLater refuses the options of starts that mean nothing for a call.
func TestSendLaterRefusesOtherOptions(t *testing.T) {
	t.Parallel()
	d := newDiary()
	app, err := embedded.Open(t.Context(), "memory:", d.entity)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()

	for name, opt := range map[string]perdure.StartOption{
		"ExecutionTimeout": perdure.ExecutionTimeout(time.Hour), "Reuse": perdure.ReuseAlways,
		"ParentClose": perdure.CancelChild, "RetryPolicy": perdure.Exponential(3), "Priority": perdure.Priority(3),
	} {
		_, err := d.note.SendLater(app.With(t.Context()), "k", "x", perdure.StartDelay(time.Hour), opt)
		if !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), "only StartDelay, StartAt, Key") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A delayed call with an encrypted value waits while the mailbox is full, and runs when there is
// room.
func TestSendLaterToAFullMailbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDiary(perdure.MailboxSize(1), perdure.OperationTimeout(10*time.Hour))
		running, release := make(chan struct{}), make(chan struct{})
		block := perdure.NewOperation(d.entity, "block", func(perdure.EntityCtx, *[]string, perdure.Void) (perdure.Void, error) {
			close(running)
			<-release
			return perdure.Void{}, nil
		})
		keys, err := payload.NewKeys("k", map[string][]byte{"k": bytes.Repeat([]byte{1}, 32)}, bytes.Repeat([]byte{2}, 32))
		if err != nil {
			t.Fatal(err)
		}
		settings := payload.Codec{Format: payload.Msgpack, Chain: []payload.Transform{payload.Encrypt(keys)}}
		app, err := embedded.Config{Payloads: settings}.Open(t.Context(), "memory:", d.entity)
		if err != nil {
			t.Fatal(err)
		}
		defer app.Close()
		c := app.With(t.Context())

		if err := block.Send(c, "k", perdure.Void{}); err != nil {
			t.Fatal(err)
		}
		<-running
		if err := d.note.Send(c, "k", "waits"); err != nil {
			t.Fatal(err)
		}
		later, err := d.note.SendLater(c, "k", "later", perdure.StartDelay(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour) // longer than one run of perdure.send tries
		if out, err := later.Poll(c); err != nil || out.Status != perdure.Running {
			t.Errorf("while the mailbox is full: %+v, %v", out, err)
		}
		close(release)
		if _, err := later.Result(c); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := d.read(t, c); got != "waits,later" {
			t.Errorf("the diary has %s", got)
		}

		for _, wrong := range []perdure.StartOption{perdure.StartDelay(-1), perdure.Constant(3, time.Second), perdure.OnQueue("q")} {
			if _, err := d.note.SendLater(c, "k", "x", wrong); !errors.Is(err, perdure.ErrInvalid) {
				t.Errorf("%T: %v", wrong, err)
			}
		}
	})
}
