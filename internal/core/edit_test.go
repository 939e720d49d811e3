package core_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// editor edits one entity at the times that a test chooses.
type editor struct {
	*testing.T
	n *core.Entity
}

func newEditor(t *testing.T) editor {
	t.Helper()
	return editor{t, core.NewEntity(model.Address{Tenant: "default", Type: "entity:ledger", Key: "a"}, nil, nil)}
}

func (e editor) edit(version, state string, now model.Time) core.Decision {
	return e.n.Deliver(&model.Message{
		Kind: model.MessageMailbox, To: e.n.Row.Address, Name: model.MailboxEdit, ID: version, Input: model.Payload{Data: []byte(state)},
	}, core.Arrival{Life: core.Life{TTL: time.Hour}}, now)
}

// must edits the entity, fails the test if the edit is refused, and returns the new version.
func (e editor) must(version, state string, now model.Time) string {
	e.Helper()
	d := e.edit(version, state, now)
	if d.Refusal() != nil || d.Entity == nil {
		e.Fatalf("edit of version %s: %v, %+v", version, d.Refusal(), d.Entity)
	}
	return string(d.Answer.Output.Data)
}

// wantRefused checks that an edit is refused and writes nothing.
func (e editor) wantRefused(kind, version string, now model.Time) {
	e.Helper()
	if d := e.edit(version, "refused", now); refusal(d.Refusal()) != kind || d.HasWrites() || string(e.n.Row.State.Data) == "refused" {
		e.Errorf("edit of version %s: %v, writes %v", version, d.Refusal(), d.HasWrites())
	}
}

// An edit replaces only the version that the operator has seen. It does not replace a later
// version, or the version with the same number of an entity that was deleted and created again.
func TestEdit(t *testing.T) {
	t.Parallel()
	e := newEditor(t)
	e.wantRefused("conflict", "1", 1)
	first := e.must("0", "one", 1)
	if r := &e.n.Row; first != "1-1" || !r.Exists || r.Created != 1 || r.Expires != model.Time(1).Add(time.Hour) {
		t.Errorf("version %s: %+v", first, r)
	}
	e.wantRefused("conflict", "0", 2)
	e.wantRefused("conflict", "1-7", 2)
	second := e.must("1", "two", 2)
	e.wantRefused("conflict", first, 3)
	for _, version := range []string{"", "-1", "1-", "1-x", "one", "0-1"} {
		e.wantRefused("invalid", version, 3)
	}
	if third := e.must(second, "three", 3); third != "3-3" || e.n.Row.Created != 1 {
		t.Errorf("version %s: %+v", third, e.n.Row)
	}

	// The state has expired, so there is no state to replace.
	late := model.Time(1).Add(time.Hour)
	if d := e.edit("3", "late", late); refusal(d.Refusal()) != "conflict" || d.Entity == nil || !d.Entity.Gone {
		t.Errorf("edit of an expired state: %v, %+v", d.Refusal(), d.Entity)
	}
	if again := e.must("0", "again", late); again != "1-"+strconv.FormatInt(int64(late), 10) {
		t.Errorf("version %s", again)
	}
	e.wantRefused("conflict", first, late)
}

// Only the code of an operation that runs, or the section that holds the lock, may change the
// state.
func TestEditWaitsForOthers(t *testing.T) {
	t.Parallel()
	e := newEditor(t)
	version := e.must("0", "one", 1)
	e.n.Deliver(&model.Message{Kind: model.MessageCall, To: e.n.Row.Address, Name: "op"}, core.Arrival{Room: 10}, 2)
	items := e.n.Next(10, 1<<20)
	e.wantRefused("conflict", version, 3)
	e.n.Apply(items, &model.Operated{Results: make([]model.OperationResult, 1)}, e.n.Row.Version, 4)
	version = e.must(version, "two", 5)

	e.n.Deliver(lockMessage(e.n.Row.Address, "s", 1), core.Arrival{Room: 10}, 6)
	e.wantRefused("conflict", version, 7)
	e.wantRefused("conflict", e.n.Row.VersionNow().String(), 7)

	service := core.NewEntity(model.Address{Tenant: "default", Type: "service:s", Key: "a"}, nil, nil)
	editor{t, service}.wantRefused("invalid", "0", 8)
}
