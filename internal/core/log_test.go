package core_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// diary is an entity that keeps its last operations.
type diary struct {
	*testing.T
	n    *core.Entity
	hand core.HandOver
	now  model.Time
}

// operate makes one call and returns the decision.
func (y *diary) operate(name string, r model.Operated) core.Decision {
	y.Helper()
	y.now++
	m := &model.Message{Kind: model.MessageCall, To: y.n.Row.Address, Name: name, RequestID: model.CallIDs + name, Input: model.Payload{Data: []byte("12345")}}
	y.n.Deliver(m, core.Arrival{Room: 100}, y.now)
	items := y.n.Next(1, 1<<20)
	core.Attach(items, y.hand)
	d, ok := y.n.Apply(items, &r, y.n.Row.Version, y.now)
	if !ok {
		y.Fatalf("%s is refused", name)
	}
	return d
}

func (y *diary) names() (all []string) {
	for i := range y.n.Row.Log {
		r := &y.n.Row.Log[i]
		text := r.RequestID + fmt.Sprint(" at ", int64(r.At))
		if r.Failure != nil {
			text += " fails: " + r.Failure.Message
		}
		all = append(all, text)
	}
	return all
}

// The log has the last operations, also operations that failed or changed nothing. It is stored in
// the row, and is removed together with the state.
func TestOperationLog(t *testing.T) {
	t.Parallel()
	y := &diary{T: t, n: core.NewEntity(model.Address{Tenant: "default", Type: "entity:ledger", Key: "a"}, nil, nil), hand: core.HandOver{Log: 3}}
	fails := model.Operated{Results: []model.OperationResult{{Failure: &model.Failure{Message: "no", Stack: "main.go:1"}}}}
	idle := model.Operated{Results: make([]model.OperationResult, 1)}
	creates := model.Operated{Results: make([]model.OperationResult, 1), Changed: true, Exists: true, State: model.Payload{Data: []byte("1")}}

	if d := y.operate("early", fails); d.Entity != nil || len(y.n.Row.Log) != 0 {
		t.Errorf("the log of an entity without a state: %+v", d.Entity)
	}
	y.operate("a", creates)
	if d := y.operate("b", idle); d.Entity == nil || len(d.Entity.Entity.Log) != 2 || d.Entity.Entity.Version != 2 {
		t.Errorf("an operation that changes nothing is not stored: %+v", d.Entity)
	}
	y.operate("c", fails)
	y.operate("d", idle)
	if got, want := strings.Join(y.names(), ", "), "b at 3, c at 4 fails: no, d at 5"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if r := y.n.Row.Log[1]; r.Failure.Stack != "" || r.Bytes != 5 || r.Input.Size() != 0 || r.Name != "c" {
		t.Errorf("%+v", r)
	}

	// Without the option, the log stays as it is and costs nothing.
	y.hand = core.HandOver{}
	if d := y.operate("e", idle); d.Entity != nil || len(y.n.Row.Log) != 3 {
		t.Errorf("an operation without a log: %+v", d.Entity)
	}
	y.hand = core.HandOver{Log: 3, LogInputs: true}
	y.operate("f", idle)
	if r := y.n.Row.Log[2]; string(r.Input.Data) != "12345" {
		t.Errorf("%+v", r)
	}
	if d := y.operate("g", model.Operated{Results: make([]model.OperationResult, 1), Changed: true}); !d.Entity.Gone || len(y.n.Row.Log) != 0 {
		t.Errorf("a deleted state leaves %+v", y.n.Row)
	}
}

// The log has only operations that ran. A call that the worker could not run is not in the log, and
// does not write the row.
func TestLogWithoutCallsThatDidNotRun(t *testing.T) {
	t.Parallel()
	y := &diary{T: t, n: core.NewEntity(model.Address{Tenant: "default", Type: "entity:ledger", Key: "a"}, nil, nil), hand: core.HandOver{Log: 3}}
	y.operate("a", model.Operated{Results: make([]model.OperationResult, 1), Changed: true, Exists: true, State: model.Payload{Data: []byte("1")}})
	d := y.operate("unknown", model.Operated{Results: []model.OperationResult{{Failure: &model.Failure{Message: "there is no such operation"}, Unmade: true}}})
	if got := strings.Join(y.names(), ", "); got != "a at 1" || d.Entity != nil {
		t.Errorf("the log has %s, and the row is written: %t", got, d.Entity != nil)
	}
}

// A log is bounded in number and in bytes.
func TestLogBounds(t *testing.T) {
	t.Parallel()
	var log []model.OperationRecord
	for i := range 300 {
		m := &model.Message{Name: fmt.Sprint(i, strings.Repeat("x", 2000)), Input: model.Payload{Data: make([]byte, model.MaxLoggedInput+i%2)}}
		log = model.AppendLog(log, []model.OperationRecord{model.RecordOf(m, nil, 1, true)}, 1000)
		if len(log) > model.MaxOperationLog || model.LogSize(log) > model.MaxLogBytes || !strings.HasPrefix(log[len(log)-1].Name, fmt.Sprint(i)) {
			t.Fatalf("%d records of %d bytes", len(log), model.LogSize(log))
		}
		if kept := log[len(log)-1].Input.Size() > 0; kept != (i%2 == 0) {
			t.Fatalf("the input of record %d is kept: %v", i, kept)
		}
	}
	small := model.OperationRecord{Name: "op"}
	if log = model.AppendLog(nil, make([]model.OperationRecord, 300), 1000); len(log) != model.MaxOperationLog {
		t.Errorf("%d records", len(log))
	}
	if log = model.AppendLog(log, []model.OperationRecord{small}, 2); len(log) != 2 || log[1].Name != "op" {
		t.Errorf("%+v", log)
	}
}

// An interrupt applies to the calls that a worker has. It does not apply to views, or to calls that
// wait.
func TestInterruptNamesRunningCalls(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "default", Type: "entity:ledger", Key: "a"}
	n := core.NewEntity(a, nil, nil)
	ask := func(id string) (model.Calls, string) {
		t.Helper()
		d := n.Deliver(&model.Message{Kind: model.MessageMailbox, To: a, Name: model.MailboxInterrupt, ID: id}, core.Arrival{}, 9)
		if d.Refusal() != nil || d.HasWrites() {
			return model.Calls{}, refusal(d.Refusal())
		}
		c, err := model.DecodeCalls(d.Answer.Output)
		if err != nil {
			t.Fatal(err)
		}
		return c, ""
	}

	for _, name := range []string{"first", "second"} {
		n.Deliver(&model.Message{Kind: model.MessageCall, To: a, Name: name}, core.Arrival{Room: 10}, 1)
	}
	n.Deliver(&model.Message{Kind: model.MessageCall, To: a, Name: "view"}, core.Arrival{Room: 10, View: true}, 1)
	if _, why := ask(""); why != "not_found" {
		t.Errorf("nothing runs: %q", why)
	}

	n.Next(1, 1<<20)
	n.Views(func(string) bool { return true })
	c, _ := ask("")
	if len(c.Calls) != 1 || c.Calls[0].Operation != "first" || !c.Calls[0].Running {
		t.Fatalf("%+v", c)
	}
	if same, _ := ask(c.Calls[0].ID); len(same.Calls) != 1 {
		t.Errorf("%+v", same)
	}
	if _, why := ask("7-000000000000"); why != "not_found" {
		t.Errorf("another call: %q", why)
	}
}
