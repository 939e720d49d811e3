package core_test

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// TestTranscripts plays the conversations in testdata. Each one has the form
//
//	an input, with the commands of a turn one per line
//	----
//	what the core decides, and the state that it leaves
//
// After every input the invariants are checked as well (see world). The inputs are:
//
//	clock 10s                         it is 10 s after the beginning
//	limits events=5 signals=2 timers=3
//	start KEY input= request= reuse=always|failed from=KEY.runN.step abandon
//	      with=(name:input,…) labels=(name:value,…)
//	past KEY of=KEY.runN keep=N run=runN next=N closed=status reuse= request=
//	                                  a start with the first events of a run
//	delete KEY runs=(runN,…)
//	signal KEY name= input= request= run=runN from=
//	settle KEY name= value= failure= request=
//	cancel KEY reason= run=
//	watch KEY run= from=KEY.runN.step
//	update KEY name= input= request= run= from=
//	terminate KEY reason= run= from=
//	pause KEY reason= request=
//	resume KEY request=
//	closed KEY step= run= output= from=     the outcome of a child
//	answer KEY step= run= output=           the answer to a message of a step
//	crash KEY                               another node takes the execution over
//	turn KEY seen= ahead=                   commands as in command
//	fire KEY timer=                         a timer is due
//	release KEY seen= waits=name
//	mail                                    deliver all messages, until none is left
//	lose                                    forget all messages
func TestTranscripts(t *testing.T) {
	t.Parallel()
	if *update {
		if err := flag.Set("rewrite", "true"); err != nil {
			t.Fatal(err)
		}
	}

	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		var w *world
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			if w == nil {
				w = newWorld(nil)
			}
			w.fatal = func(format string, args ...any) { td.Fatalf(t, format, args...) }
			return (&script{t, td, w}).run()
		})
	})
}

// script is one directive of a transcript.
type script struct {
	t  *testing.T
	td *datadriven.TestData
	w  *world
}

func (s *script) arg(key string) string {
	if a, ok := s.td.Arg(key); ok && len(a.Vals) > 0 {
		return a.Vals[0]
	}
	return ""
}

func (s *script) num(key string) int {
	if s.arg(key) == "" {
		return 0
	}
	n, err := strconv.Atoi(s.arg(key))
	if err != nil {
		s.td.Fatalf(s.t, "%s: %v", key, err)
	}
	return n
}

func (s *script) key() model.Address {
	if len(s.td.CmdArgs) == 0 {
		s.td.Fatalf(s.t, "%s needs the key of an execution", s.td.Cmd)
	}
	return address(s.td.CmdArgs[0].Key)
}

func (s *script) run() string {
	w := s.w
	switch s.td.Cmd {
	case "clock":
		w.now = s.time(s.td.CmdArgs[0].Key)
		return "it is " + since(w.now) + "\n"
	case "limits":
		w.lim = core.Limits{Events: int64(s.num("events")), Signals: s.num("signals"), Timers: s.num("timers"), Past: s.num("past"), PastBytes: s.num("bytes")}
		return fmt.Sprintf("at most %d events, %d signals, %d timers\n", w.lim.Events, w.lim.Signals, w.lim.Timers)
	case "past":
		return s.deliver(s.past())
	case "delete":
		m := s.message()
		m.Kind = model.MessageDelete
		if a, ok := s.td.Arg("runs"); ok {
			for _, text := range a.Vals {
				m.Runs = append(m.Runs, s.runOf(text))
			}
		}
		return s.deliver(m)
	case "start", "signal", "settle", "cancel", "watch", "closed", "nothing", "update", "answer", "terminate", "pause", "resume":
		return s.deliver(s.message())
	case "turn":
		return s.turn()
	case "fire":
		id := strings.ReplaceAll(s.arg("timer"), "/", "\x1f")
		d := w.fire(s.key(), id)
		return s.outcome(s.key(), &d, "")
	case "release":
		waits := []model.Reason{{Code: model.WaitSignal, Name: s.arg("waits")}}
		d, ok := w.release(s.key(), int64(s.num("seen")), waits)
		return s.outcome(s.key(), &d, fmt.Sprintf("released: %v\n", ok))
	case "mail":
		var out strings.Builder
		for len(w.mail) > 0 {
			m := w.mail[0]
			w.mail = w.mail[1:]
			fmt.Fprintf(&out, "> %s\n%s", messageText(&m), s.deliver(&m))
		}
		return out.String()
	case "crash":
		w.crash(s.key())
		return stateText(w.seat(s.key()).x)
	case "lose":
		n := len(w.mail)
		w.mail = nil
		return fmt.Sprintf("%d messages are lost\n", n)
	}

	s.td.Fatalf(s.t, "unknown directive %s", s.td.Cmd)
	return ""
}

func (s *script) time(text string) model.Time {
	if text == "max" {
		return model.MaxTime
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		s.td.Fatalf(s.t, "%v", err)
	}
	return epoch.Add(d)
}

func (s *script) link(text string) (l model.Link) {
	parts := strings.SplitN(text, ".", 3)
	if parts[0] == "" {
		return l
	}
	l.Address = address(parts[0])
	if len(parts) > 1 {
		l.Run = s.runOf(parts[1])
	}
	if len(parts) > 2 {
		l.ID = parts[2]
	}
	return l
}

func (s *script) runOf(text string) model.RunID {
	if text == "" {
		return model.RunID{}
	}
	n, err := strconv.Atoi(strings.TrimPrefix(text, "run"))
	if err != nil {
		s.td.Fatalf(s.t, "%q is no run", text)
	}
	return runID(n)
}

func value(text string) model.Payload {
	if text == "" {
		return model.Payload{}
	}
	return model.Payload{Data: []byte(text)}
}

// past returns a start with the first events of another run.
func (s *script) past() *model.Message {
	m := s.message()
	m.Kind = model.MessageStart
	m.Reuse = map[string]model.ReusePolicy{"always": model.ReuseAlways, "failed": model.ReuseIfFailed}[s.arg("reuse")]

	of := s.link(s.arg("of"))
	for _, r := range s.w.seat(of.Address).runs {
		if r.start.Run != of.Run {
			continue
		}
		n := s.num("keep")
		m.Input = r.start.Input

		kept := r.all()[:n]
		for i := range kept {
			if kept[i].Kind == model.EventWatched {
				kept[i] = model.Blank(&kept[i]) // as package history does
			}
		}

		m.Past = &model.Past{
			Events: model.PastOf(kept), Began: r.start.Zero(), Next: int64(s.num("next")), Origin: r.start.Origin,
			Source: model.Source{Address: of.Address, Run: of.Run, Position: int64(n)},
		}

		if s.td.HasArg("backwards") {
			slices.Reverse(m.Past.Events)
		}

		if word := s.arg("closed"); word != "" {
			m.Past.Status, _ = model.ParseStatus(word)
			m.Past.At = s.w.now
		}
	}

	if m.Past == nil {
		s.td.Fatalf(s.t, "there is no run %s", s.arg("of"))
	}
	return m
}

// message returns what a start, signal, … directive sends.
func (s *script) message() *model.Message {
	m := &model.Message{
		To: s.key(), ToRun: s.runOf(s.arg("run")), From: s.link(s.arg("from")), Name: s.arg("name"),
		Input: value(s.arg("input")), RequestID: s.arg("request"),
	}

	switch s.td.Cmd {
	case "start":
		m.Kind = model.MessageStart
		m.Reuse = map[string]model.ReusePolicy{"always": model.ReuseAlways, "failed": model.ReuseIfFailed}[s.arg("reuse")]
		if s.td.HasArg("abandon") {
			m.Policy = model.AbandonChild
		}
		if a, ok := s.td.Arg("with"); ok {
			for _, text := range a.Vals {
				n, in, _ := strings.Cut(text, ":")
				m.With = append(m.With, model.Event{Name: n, Input: value(in)})
			}
		}
		if a, ok := s.td.Arg("labels"); ok {
			for _, text := range a.Vals {
				n, v, _ := strings.Cut(text, ":")
				m.Labels = model.SetLabel(m.Labels, n, v)
			}
		}
	case "signal":
		m.Kind = model.MessageSignal
	case "settle":
		m.Kind, m.Input = model.MessageSettle, value(s.arg("value"))
		if s.arg("failure") != "" {
			m.Failure = &model.Failure{Message: s.arg("failure")}
		}
	case "cancel":
		m.Kind, m.Failure = model.MessageCancel, &model.Failure{Kind: model.FailureCanceled, Message: s.arg("reason")}
	case "watch":
		m.Kind = model.MessageWatch
	case "closed":
		m.Kind, m.ID, m.Status, m.Input = model.MessageClosed, s.arg("step"), model.Completed, value(s.arg("output"))
	case "nothing":
		m.Kind = model.MessageNothing
	case "update":
		m.Kind = model.MessageUpdate
	case "answer":
		m.Kind, m.ID, m.Input = model.MessageAnswer, s.arg("step"), value(s.arg("output"))
	case "terminate":
		m.Kind, m.Failure = model.MessageTerminate, s.reason()
	case "pause":
		m.Kind, m.Failure = model.MessagePause, s.reason()
	case "resume":
		m.Kind = model.MessageResume
	}

	return m
}

// reason returns why an operator intervenes; nil when the script does not say.
func (s *script) reason() *model.Failure {
	if s.arg("reason") == "" {
		return nil
	}
	return &model.Failure{Message: s.arg("reason")}
}

func (s *script) deliver(m *model.Message) string {
	d := s.w.deliver(m)
	if d.Pending {
		return s.outcome(m.To, &d, "") // the code has not answered yet
	}
	return s.outcome(m.To, &d, answerText(d.Answer))
}

func (s *script) outcome(a model.Address, d *core.Decision, answer string) string {
	return decisionText(a, d) + answer + stateText(s.w.seat(a).x)
}

func (s *script) turn() string {
	a := s.key()
	x := s.w.seat(a).x
	t := &model.Turn{Run: x.Start.Run, Seen: int64(s.num("seen")), Ahead: s.num("ahead")}
	for line := range strings.Lines(s.td.Input) {
		s.command(t, strings.TrimSpace(line))
	}
	d, err := s.w.turn(a, t)
	if err != nil {
		return "error " + errorText(err) + "\n" + stateText(s.w.seat(a).x)
	}
	answer := ""
	if d.Answer.Run != (model.RunID{}) {
		answer = answerText(d.Answer)
	}
	return s.outcome(a, &d, answer)
}

// command reads one line of a turn:
//
//	step a = 1 | step a failed: why | retry a attempt=1 after=5s: why | take 3
//	set x = 1 | unset x | pin v1
//	answer 3 = 1 | answer 3 failed: why
//	timer t at=1m | stop t | withdraw t
//	child c to=KEY input= reuse= abandon detached label=name:value
//	watch w to=KEY run=
//	send s signal|cancel|settle|update|terminate|pause|resume to=KEY name= input=
//	label a = eu | label a =                               the latter removes it
//	complete 42 | fail: why | canceled: why | continue 43 begun=3,4 | blocked: why
//	record kind | command n | send s nobody | end n        what no worker may send
func (s *script) command(t *model.Turn, line string) {
	line, why, _ := strings.Cut(line, ": ")
	f := strings.Fields(line)
	id := ""
	if len(f) > 1 {
		id = f[1]
	}

	args := map[string]string{}
	for _, word := range f {
		k, v, _ := strings.Cut(word, "=")
		args[k] = v
	}

	add := func(c model.Command) { t.Commands = append(t.Commands, c) }
	record := func(e model.Event) { add(model.Command{Kind: model.CommandRecord, Event: e}) }
	switch f[0] {
	case "step":
		if strings.HasSuffix(line, " failed") {
			record(model.Event{Kind: model.EventStepFailed, ID: id, Failure: &model.Failure{Message: why}})
		} else {
			record(model.Event{Kind: model.EventStepCompleted, ID: id, Output: value(f[len(f)-1])})
		}
	case "take":
		ref, _ := strconv.ParseInt(id, 10, 64)
		record(model.Event{Kind: model.EventSignalTaken, ID: "take" + id, Ref: ref})
	case "set":
		record(model.Event{Kind: model.EventStateSet, ID: "set " + id, Name: id, Output: value(f[len(f)-1])})
	case "unset":
		record(model.Event{Kind: model.EventStateSet, ID: "unset " + id, Name: id})
	case "note":
		record(model.Event{Kind: model.EventNoted, ID: id, Name: id, Input: value(f[len(f)-1])})
	case "pin":
		record(model.Event{Kind: model.EventPinned, ID: "pin", Name: id})
	case "answer":
		e := model.Event{ID: "answer" + id}
		e.Ref, _ = strconv.ParseInt(id, 10, 64)
		if strings.HasSuffix(line, " failed") {
			e.Failure = &model.Failure{Message: why}
		} else {
			e.Output = value(f[len(f)-1])
		}
		add(model.Command{Kind: model.CommandAnswer, Event: e})
	case "mark":
		v, _ := strconv.ParseInt(args["version"], 10, 64)
		record(model.Event{Kind: model.EventVersionMarked, ID: "mark " + id, Name: id, Ref: v})
	case "label":
		_, v, _ := strings.Cut(line, "= ")
		record(model.Event{Kind: model.EventLabeled, ID: "label " + id, Name: id, Output: model.TextPayload(v)})
	case "retry":
		d, _ := time.ParseDuration(args["after"])
		n, _ := strconv.Atoi(args["attempt"])
		add(model.Command{Kind: model.CommandRetry, Delay: d, Event: model.Event{ID: id, Attempt: n, Failure: &model.Failure{Message: why}}})
	case "timer":
		c := model.Command{Kind: model.CommandStartTimer, Event: model.Event{ID: id}}
		if at, ok := args["at"]; ok {
			c.Event.Due = s.time(at)
		}
		c.Delay, _ = time.ParseDuration(args["after"])
		add(c)
	case "stop":
		add(model.Command{Kind: model.CommandStopTimer, Event: model.Event{ID: id}})
	case "withdraw":
		add(model.Command{Kind: model.CommandWithdraw, Event: model.Event{ID: id}})
	case "child", "watch":
		c := model.Command{Kind: model.CommandStartChild, Event: model.Event{ID: id, Target: address(args["to"]), Input: value(args["input"])}}
		if f[0] == "watch" {
			c.Kind, c.Event.Run = model.CommandWatch, s.runOf(args["run"])
		}
		c.Reuse = map[string]model.ReusePolicy{"always": model.ReuseAlways, "failed": model.ReuseIfFailed}[args["reuse"]]
		if _, ok := args["abandon"]; ok {
			c.Event.Policy = model.AbandonChild
		}
		_, c.Event.Detached = args["detached"]
		if n, v, ok := strings.Cut(args["label"], ":"); ok {
			c.Labels = []model.Label{{Name: n, Value: v}}
		}
		add(c)
	case "send":
		kinds := map[string]model.MessageKind{
			"signal": model.MessageSignal, "cancel": model.MessageCancel, "settle": model.MessageSettle, "update": model.MessageUpdate,
			"terminate": model.MessageTerminate, "pause": model.MessagePause, "resume": model.MessageResume,
		}
		c := model.Command{Kind: model.CommandSend, Event: model.Event{ID: id, Name: args["name"], Target: address(args["to"])}}
		if k, ok := kinds[f[2]]; ok {
			c.Message = &model.Message{Kind: k, To: address(args["to"]), Name: args["name"], Input: value(args["input"])}
		}
		add(c)
	case "record":
		for k := model.EventStarted; k <= model.LastEventKind; k++ {
			if k.String() == id {
				record(model.Event{Kind: k, ID: "x"})
			}
		}
	case "command":
		n, _ := strconv.Atoi(id)
		add(model.Command{Kind: model.CommandKind(n)})
	case "complete":
		t.Close = &model.Close{Status: model.Completed, Output: value(id)}
	case "fail":
		t.Close = &model.Close{Status: model.Failed, Failure: &model.Failure{Message: why}}
	case "canceled":
		t.Close = &model.Close{Status: model.Canceled, Failure: &model.Failure{Kind: model.FailureCanceled, Message: why}}
	case "end":
		n, _ := strconv.Atoi(id)
		t.Close = &model.Close{Status: model.Status(n)}
	case "continue":
		t.Close = &model.Close{Status: model.Continued, Input: value(id)}
		for word := range strings.SplitSeq(args["begun"], ",") {
			if seq, err := strconv.ParseInt(word, 10, 64); err == nil {
				t.Close.Begun = append(t.Close.Begun, seq)
			}
		}
	case "blocked":
		t.Blocked = &model.Reason{Code: model.WaitMismatch, Detail: why}
	default:
		s.td.Fatalf(s.t, "unknown command %q", line)
	}
}
