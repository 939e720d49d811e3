package storetest

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var searchTests = []test{
	{name: "a text is found wherever a payload can be", run: testSearch},
	{name: "a search that is not to go on ends", run: testSearchEnds},
}

// marks searches the store for the common prefix of the texts that the test has stored, and returns
// all texts that the search finds.
func (x *suite) marks() map[string]bool {
	x.Helper()
	found := map[string]bool{}
	err := x.Store.(store.Searcher).Search(x.Context(), "needle:", func(value []byte) error {
		for rest := value; ; {
			_, after, ok := bytes.Cut(rest, []byte("needle:"))
			if !ok {
				return nil
			}
			name, tail, _ := bytes.Cut(after, []byte("."))
			found[string(name)], rest = true, tail
		}
	})
	if err != nil {
		x.Fatalf("search: %v", err)
	}

	return found
}

func needle(name string) model.Payload {
	return model.Payload{Data: []byte("\x00needle:" + name + ".\xff"), Encoding: "json+blob"}
}

func testSearch(x *suite) {
	l := x.Join(1).Lanes[0]
	x.Want("nothing", map[string]bool{}, x.marks())
	want := map[string]bool{}

	payload := func(name string) model.Payload {
		want[name] = true
		return needle(name)
	}

	one, large := x.SubjectIn(1), x.SubjectIn(2)
	one.Start.Input = payload("input")
	one.Start.Carried = []model.Event{{Kind: model.EventSignalReceived, Seq: 1, Name: "s", Input: payload("carried")}}
	large.Start.Input = payload("large")
	large.Start.Input.Data = append(large.Start.Input.Data, strings.Repeat("x", 1<<20)...)
	event := one.Event(1)
	event.Event.Input, event.Event.Output = payload("event input"), payload("event output")

	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{one.StartRow(), large.StartRow()}
		b.Events = []store.EventRow{event}
	})

	dead := one.Dead("a", "charge", "boom", Noon)
	dead.Body.Input = payload("dead")
	line := one.Line("a", Noon, 0, "needle:line.")
	want["line"] = true

	l.Write(func(b *store.Batch) {
		b.Dead, b.Logs = []store.DeadRow{dead}, []store.LogRow{line}
		b.TaskData = []store.TaskDatum{{RunKey: one.RunKey, Task: "a", Name: "n", Value: payload("datum")}}
	})

	x.putSetting(setting("limit", "a", "needle:setting."), 0)
	want["setting"] = true
	end := one.Close(model.Completed)
	end.Outcome.Output = payload("outcome")

	l.Write(func(b *store.Batch) {
		b.Closes = []store.CloseRow{end}
		b.Messages = []store.MessageRow{{To: 3, From: 1, Seq: 1, Message: model.Message{
			Kind: model.MessageSignal, To: x.AddressIn(3), Input: payload("message"), With: []model.Event{{Name: "w", Input: payload("with")}},
		}}}
	})

	request := x.SubjectIn(4).Request(x.RunID(), "r")
	request.Message.Input = payload("request")
	x.put(request)
	counter := x.Counter()
	state, call := counter.Set(1, ""), counter.Mail(1)
	state.Entity.State, call.Item.Message.Input = payload("state"), payload("mailbox")
	l.Write(func(b *store.Batch) { b.Entities, b.Mailbox = []store.EntityRow{state}, []store.MailboxRow{call} })
	other := x.Subject()
	other.Start.Input = model.Payload{Data: []byte("a needl, e: in a haystack")}
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{other.StartRow()} })
	x.Want("found", want, x.marks())
}

func testSearchEnds(x *suite) {
	l := x.Join(1).Lanes[0]
	for range 3 {
		s := x.Subject()
		s.Start.Input = needle("x")
		l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{s.StartRow()} })
	}

	stop, n := errors.New("enough"), 0
	err := x.Store.(store.Searcher).Search(x.Context(), "needle:", func([]byte) error { n++; return stop })
	if !errors.Is(err, stop) || n != 1 {
		x.Errorf("found %d, %v", n, err)
	}
	ctx, cancel := context.WithCancel(x.Context())
	cancel()
	if err := x.Store.(store.Searcher).Search(ctx, "needle:", func([]byte) error { return nil }); err == nil {
		x.Errorf("a search after its end found something")
	}
	x.Want("still there", map[string]bool{"x": true}, x.marks())
}
