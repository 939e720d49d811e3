package history_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
)

// record makes a history from short words. Each word is one event: a mark, and mostly a name.
//
//	+a -a ~a    step a has completed, has failed; an attempt of step a has failed
//	>a <a !a    child a has started, has completed, has failed
//	?a * #      signal a has arrived; the code took the last signal, an operator dropped it
//	=a @a x     promise a is settled; a is a watcher; a cancel request
//	/a          what the code asked for under the id a was withdrawn
//	(a [a ]a    task a is scheduled, claimed, given back
//	ta Ta       an attempt of task a has timed out; task a has timed out permanently
//	^a :a ;a    message a was sent; it was answered; it was answered with a failure
//	{a ga }a    section a asks to lock two entities; one of them is locked; the section has ended
//	ua Ua Fa    update a was received; the last update was answered, without or with an error
func record(words string) *model.History {
	h := sample()
	h.Events, h.Outcome = nil, model.Outcome{Status: model.Failed}
	last := int64(0)
	for i, w := range strings.Fields(words) {
		e := model.Event{Seq: int64(i + 1), At: noon + model.Time(i+1), ID: w[1:], Name: w[1:]}
		target := model.Address{Tenant: "default", Type: w[1:], Key: w[1:]}
		switch w[0] {
		case '+':
			e.Kind, e.Output = model.EventStepCompleted, model.Payload{Data: []byte("1")}
		case '-':
			e.Kind, e.Failure = model.EventStepFailed, &model.Failure{Message: "no"}
		case '~':
			e.Kind, e.Due = model.EventAttemptFailed, noon+1000
		case '>':
			e.Kind, e.Target = model.EventChildStarted, target
		case '<':
			e.Kind, e.Target, e.Status, e.Name = model.EventChildClosed, target, model.Completed, ""
		case '!':
			e.Kind, e.Target, e.Status, e.Name = model.EventChildClosed, target, model.Failed, ""
		case '?':
			e.Kind, last = model.EventSignalReceived, e.Seq
		case '*':
			e.Kind, e.Ref = model.EventSignalTaken, last
		case '#':
			e.Kind, e.Ref = model.EventSignalDropped, last
		case 'u':
			e.Kind, e.RequestID, last = model.EventUpdateReceived, "r", e.Seq
		case 'U':
			e.Kind, e.Ref = model.EventUpdateAnswered, last
		case 'F':
			e.Kind, e.Ref, e.Failure = model.EventUpdateAnswered, last, &model.Failure{Message: "no"}
		case '=':
			e.Kind = model.EventPromiseSettled
		case '@':
			e.Kind, e.Watcher = model.EventWatched, &model.Link{Address: target, ID: "w"}
		case 'x':
			e.Kind = model.EventCancelRequest
		case '/':
			e.Kind = model.EventWithdrawn
		case '(':
			e.Kind, e.Task = model.EventTaskScheduled, &model.TaskSpec{Kind: w[1:], Queue: "q"}
		case '{':
			e.Kind, e.Locks = model.EventLockAsked, []model.Address{{Type: "entity:account", Key: "1"}, {Type: "entity:account", Key: "2"}}
		case 'g':
			e.Kind = model.EventLockGranted
		case '}':
			e.Kind, e.Section = model.EventUnlocked, w[1:]
		case '[':
			e.Kind = model.EventTaskClaimed
		case ']':
			e.Kind, e.Due = model.EventTaskReturned, noon
		case 't':
			e.Kind, e.Due, e.Failure = model.EventTaskTimedOut, noon, &model.Failure{Kind: model.FailureTimeout}
		case '^':
			e.Kind, e.Target = model.EventSent, model.Address{Tenant: "default", Type: "entity:account", Key: "1"}
		case ':':
			e.Kind, e.Name, e.Output = model.EventAnswered, "", model.Payload{Data: []byte("1")}
		case ';':
			e.Kind, e.Name, e.Failure = model.EventAnswered, "", &model.Failure{Message: "no"}
		case 'T':
			e.Kind, e.Failure = model.EventTaskTimedOut, &model.Failure{Kind: model.FailureTimeout}
		}

		h.Events = append(h.Events, e)
	}

	return h
}

// words returns events in the same short form. The mark _ is a placeholder, see model.Blank.
func words(past []model.PastEvent) string {
	var out []string
	for _, p := range past {
		e := p.Event
		e.Kind = p.Kind
		mark := map[model.EventKind]string{
			model.EventStepCompleted: "+", model.EventStepFailed: "-", model.EventAttemptFailed: "~", model.EventChildStarted: ">", model.EventChildClosed: "<",
			model.EventSignalReceived: "?", model.EventSignalTaken: "*", model.EventSignalDropped: "#", model.EventPromiseSettled: "=", model.EventWatched: "@",
			model.EventCancelRequest: "x", model.EventWithdrawn: "/", model.EventUpdateReceived: "u", model.EventUpdateAnswered: "U",
			model.EventTaskScheduled: "(", model.EventTaskClaimed: "[", model.EventTaskReturned: "]", model.EventTaskTimedOut: "t",
			model.EventSent: "^", model.EventAnswered: ":",
			model.EventLockAsked: "{", model.EventLockGranted: "g", model.EventUnlocked: "}",
		}[p.Kind]
		if e.Blank() {
			mark = "_"
		}
		out = append(out, mark+e.ID)
	}

	return strings.Join(out, " ")
}

// children returns the state of a child by its first letter: o open, c completed, f failed, x
// canceled; others do not exist.
func children(a model.Address) (model.Status, bool, error) {
	status, ok := map[byte]model.Status{'o': model.Running, 'c': model.Completed, 'f': model.Failed, 'x': model.Canceled}[a.Type[0]]
	return status, ok, nil
}

func TestCut(t *testing.T) {
	t.Parallel()
	edit := func(step string) []history.Edit {
		return []history.Edit{{Step: step, Output: model.Payload{Data: []byte("2")}}}
	}
	for _, c := range []struct {
		name, history string
		r             history.Request
		want          string
	}{
		{"fork keeps everything", "+a ?s *s =p /b +c", history.Request{Mode: history.Fork}, "+a ?s *s =p /b +c"},
		{"fork leaves watchers to the source", "@w +a", history.Request{Mode: history.Fork}, "_w +a"},
		{"fork before a step", "+a +b +c ?s", history.Request{Mode: history.Fork, Before: "b"}, "+a"},
		{"fork before the first attempt of a step", "+a ~b +c +b", history.Request{Mode: history.Fork, Before: "b"}, "+a"},
		{"fork before a call of an entity", "+a ^put :put +b", history.Request{Mode: history.Fork, Before: "put"}, "+a"},
		{"fork before a call by entity and operation", "+a ^put :put", history.Request{Mode: history.Fork, Before: "account.put"}, "+a"},
		{"fork before a step, not the message of its name", "+a ^b :b +b", history.Request{Mode: history.Fork, Before: "b"}, "+a ^b :b"},
		{"fork before a lock", "+a {l gl gl ^put :put }l", history.Request{Mode: history.Fork, Before: "lock"}, "+a"},
		{"reset before a call keeps the answer to an earlier one", "^get +a ^put :put :get", history.Request{Mode: history.Reset, Before: "put"}, "^get +a :get"},
		{"fork with the edited reply of an entity", "+a ^put :put +b", history.Request{Mode: history.Fork, Edits: edit("account.put")}, "+a ^put :put"},
		{"fork before a child", "+a >o +b", history.Request{Mode: history.Fork, Before: "o"}, "+a"},
		{"fork behind a position", "+a +b +c", history.Request{Mode: history.Fork, After: 2, Placed: true}, "+a +b"},
		{"fork from the beginning", "+a +b", history.Request{Mode: history.Fork, Placed: true}, ""},
		{"fork ends at an edited result", "+a -b +c", history.Request{Mode: history.Fork, Edits: edit("b")}, "+a +b"},
		{"fork with an edit and a place", "+a -b +c +d", history.Request{Mode: history.Fork, Edits: edit("b"), After: 3, Placed: true}, "+a +b +c"},
		{"fork with an edited child", "+a >f !f +b", history.Request{Mode: history.Fork, Edits: edit("f")}, "+a >f <f"},
		{"fork keeps a cancel request", "+a x", history.Request{Mode: history.Fork}, "+a x"},
		{"fork watches every child that exists", ">o >c >f >x >g", history.Request{Mode: history.Fork}, ">o >c >f >x _g"},
		{"retry before the last failed step", "+a -b +c ~d -d +e", history.Request{Mode: history.Retry}, "+a -b +c _d"},
		{"retry takes along what was accepted", "+a ?s -d *s ?t =p +e", history.Request{Mode: history.Retry}, "+a ?s ?t =p"},
		{"retry before a failed child", "+a >f !f +e", history.Request{Mode: history.Retry}, "+a _f"},
		{"retry before a failed child that was retried", "+a >c !c +e", history.Request{Mode: history.Retry}, "+a >c"},
		{"retry starts children again that were cancelled with it", ">x >o >c -d", history.Request{Mode: history.Retry}, "_x >o >c"},
		{"retry keeps children that have ended before", ">f !f >o <o -d", history.Request{Mode: history.Retry}, ">f <f >o <o"},
		{"retry before a call of an entity that failed", "+a ^put ;put +b", history.Request{Mode: history.Retry}, "+a _put"},
		{"retry before the last failure", "-a ^put ;put ^get :get", history.Request{Mode: history.Retry}, "-a _put"},
		{"retry before the cancel request", "+a -b x +undo -c", history.Request{Mode: history.Retry}, "+a -b"},
		{"retry of what no step has ended", "+a ?s +b", history.Request{Mode: history.Retry}, "+a ?s +b"},
		{"reset to a step", "+a ?s *s +b ?t", history.Request{Mode: history.Reset, Before: "b"}, "+a ?s *s ?t"},
		{"reset before a signal was taken", "+a ?s *s +b", history.Request{Mode: history.Reset, After: 1, Placed: true}, "+a ?s"},
		{"reset behind a dropped signal", "+a ?s #s +b", history.Request{Mode: history.Reset, After: 3, Placed: true}, "+a ?s #s"},
		{"reset between a signal and its drop", "+a ?s +b #s +c", history.Request{Mode: history.Reset, After: 3, Placed: true}, "+a ?s +b #s"},
		{"reset before a signal that was dropped", "+a ?s +b #s ?t", history.Request{Mode: history.Reset, After: 1, Placed: true}, "+a ?t"},
		{"reset before an update that was answered", "+a uv Uv +b", history.Request{Mode: history.Reset, After: 1, Placed: true}, "+a uv"},
		{"reset between an update and its answer", "+a uv +b Uv", history.Request{Mode: history.Reset, After: 3, Placed: true}, "+a uv +b"},
		{"reset behind an answered update", "+a uv Uv +b", history.Request{Mode: history.Reset, After: 3, Placed: true}, "+a uv Uv"},
		{"reset leaves out an update that failed", "+a uv Fv +b", history.Request{Mode: history.Reset, After: 1, Placed: true}, "+a"},
		{"retry leaves out an update that the end has refused", "+a -d uv Uv uw", history.Request{Mode: history.Retry}, "+a uv"},
		{"fork leaves later updates to the source", "+a +b uv", history.Request{Mode: history.Fork, After: 1, Placed: true}, "+a"},
		{"fork between a signal and its drop", "+a ?s +b #s", history.Request{Mode: history.Fork, After: 3, Placed: true}, "+a ?s +b"},
		{"reset drops a cancel request behind the place", "+a x +b", history.Request{Mode: history.Reset, After: 1, Placed: true}, "+a"},
		{"fork schedules tasks again that have no outcome", "(a [a +a (b [b ~b ]b tb [b", history.Request{Mode: history.Fork}, "(a [a +a _b _b _b _b _b _b"},
		{"fork before a task", "(a [a +a (b [b +b", history.Request{Mode: history.Fork, Before: "b"}, "(a [a +a"},
		{"fork keeps a task that was withdrawn", "(a [a /a", history.Request{Mode: history.Fork}, "(a [a /a"},
		{"fork ends at the edited result of a task", "(a [a Ta +c", history.Request{Mode: history.Fork, Edits: edit("a")}, "(a [a +a"},
		{"retry schedules the failed task again", "+a (b [b ~b [b -b +c", history.Request{Mode: history.Retry}, "+a _b _b _b _b"},
		{"retry schedules a task again that timed out for good", "+a (b [b tb [b Tb", history.Request{Mode: history.Retry}, "+a _b _b _b _b"},
		{"fork keeps locks that are over", "{l gl gl +a }l +b", history.Request{Mode: history.Fork}, "{l gl gl +a }l +b"},
		{"fork before a lock", "+a {l gl gl +b }l +c", history.Request{Mode: history.Fork, After: 1, Placed: true}, "+a"},
		{"fork behind a lock", "+a {l gl gl +b }l +c", history.Request{Mode: history.Fork, After: 6, Placed: true}, "+a {l gl gl +b }l"},
		{"fork asks again for a lock that is not granted", "{l gl +a gl +b }l", history.Request{Mode: history.Fork, After: 3, Placed: true}, "_l _l +a"},
		{"fork of a run that waits for a lock", "{l gl", history.Request{Mode: history.Fork}, "_l _l"},
		{"fork keeps a lock that was given up", "{l gl /l +a", history.Request{Mode: history.Fork}, "{l gl /l +a"},
		{"import keeps what is there", "@w +a ~b >o", history.Request{Mode: history.Import}, "_w +a ~b >o"},
	} {
		h := record(c.history)
		before := fmt.Sprint(h.Events)
		c.r.Child = children
		p, err := history.Cut(h, &c.r)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}

		if got := words(p.Past.Events); got != c.want {
			t.Errorf("%s: %q gives %q, want %q", c.name, c.history, got, c.want)
		}
		if fmt.Sprint(h.Events) != before {
			t.Errorf("%s: the source was changed", c.name)
		}

		for i := range p.Past.Events {
			if e := &p.Past.Events[i]; e.Kind == model.EventAttemptFailed && e.Event.Due != 0 {
				t.Errorf("%s: a back-off goes on", c.name)
			}
		}

		keeps := c.r.Mode == history.Retry || c.r.Mode == history.Import
		if (p.Past.Identity == h.Start.Run) != keeps || !keeps && !p.Past.Identity.IsZero() {
			t.Errorf("%s: identity %s", c.name, p.Past.Identity)
		}
	}
}

func TestCutRefuses(t *testing.T) {
	t.Parallel()
	broken := errors.New("the store is away")
	for _, c := range []struct {
		name, history string
		r             history.Request
		kind          fault.Kind
		want          string
	}{
		{"an unknown step", "+a", history.Request{Mode: history.Fork, Before: "b"}, fault.NotFound, `"b"`},
		{"a signal as a step", "?a", history.Request{Mode: history.Fork, Before: "a"}, fault.NotFound, `"a"`},
		{"a position behind the end", "+a", history.Request{Mode: history.Fork, After: 2, Placed: true}, fault.Invalid, "has 1 events"},
		{"a position before the beginning", "+a", history.Request{Mode: history.Fork, After: -1, Placed: true}, fault.Invalid, "-1"},
		{"a reset to nowhere", "+a", history.Request{Mode: history.Reset}, fault.Invalid, "say to which"},
		{"a reset behind a cancel request", "+a x +b", history.Request{Mode: history.Reset, After: 3, Placed: true}, fault.Invalid, "reset to 1 or before"},
		{"an edit of nothing", "+a ?b", history.Request{Mode: history.Fork, Edits: []history.Edit{{Step: "b"}}}, fault.NotFound, `"b"`},
		{"an edit of a position without an outcome", "+a ?b", history.Request{Mode: history.Fork, Edits: []history.Edit{{Position: 2}}}, fault.NotFound, "position 2"},
		{"an edit behind the cut", "+a +b", history.Request{Mode: history.Fork, Before: "b", Edits: []history.Edit{{Step: "b"}}}, fault.Invalid, "behind the cut"},
		{"an import without its child", ">g", history.Request{Mode: history.Import}, fault.Conflict, "import it first"},
	} {
		c.r.Child = children
		if _, err := history.Cut(record(c.history), &c.r); !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}

	away := func(model.Address) (model.Status, bool, error) { return 0, false, broken }
	if _, err := history.Cut(record(">o"), &history.Request{Mode: history.Fork, Child: away}); !errors.Is(err, broken) {
		t.Errorf("the store is away: %v", err)
	}
}

// After any number of forks and retries, the code draws the same random numbers in its past as it
// did before.
func TestSeeds(t *testing.T) {
	t.Parallel()
	run := func(n byte) model.RunID { return model.RunID{15: n} }
	h := record("+a +b +c +d +e +f")
	h.Start.Run = run(1)

	next := func(mode history.Mode, at int64, id byte) {
		p, err := history.Cut(h, &history.Request{Mode: mode, After: at, Placed: true, Child: children})
		if err != nil {
			t.Fatal(err)
		}
		h.Start.Run, h.Start.Seeds, h.Start.Identity = run(id), p.Past.Seeds, p.Past.Identity
	}

	check := func(want ...byte) {
		t.Helper()
		var got []byte
		for p := range int64(7) {
			seed := h.Start.SeedAt(p)
			got = append(got, seed[15])
		}
		if string(got) != string(want) {
			t.Errorf("seeds %v, want %v", got, want)
		}
	}

	check(1, 1, 1, 1, 1, 1, 1)
	next(history.Fork, 4, 2)
	check(1, 1, 1, 1, 2, 2, 2)
	next(history.Retry, 5, 3)
	check(1, 1, 1, 1, 2, 2, 2)
	if h.Start.IdentityRun() != run(2) {
		t.Errorf("a retry speaks in the name of %s", h.Start.IdentityRun())
	}
	next(history.Reset, 6, 4)
	check(1, 1, 1, 1, 2, 2, 4)
	next(history.Fork, 2, 5)
	check(1, 1, 5, 5, 5, 5, 5)
	next(history.Fork, 0, 6)
	check(6, 6, 6, 6, 6, 6, 6)
}
