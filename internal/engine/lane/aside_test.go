package lane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// sendDamaged commits messages of the other node. A nil message is stored in an unreadable form.
func (f *foreignNode) sendDamaged(to model.ShardID, ms ...*model.Message) {
	f.r.t.Helper()
	f.batch++
	b := &store.Batch{Lane: f.ref, Number: f.batch, At: f.r.now}
	for _, m := range ms {
		f.sent[to]++
		row := store.MessageRow{To: to, From: f.shard, Seq: f.sent[to]}
		if m == nil {
			row.Damaged = &model.Damaged{Raw: []byte{0xff, 1}}
		} else {
			row.Message = *m
		}
		b.Messages = append(b.Messages, row)
	}

	if _, err := f.r.st.Commit(f.r.t.Context(), b); err != nil {
		f.r.t.Fatal(err)
	}
}

// restartBeside starts a new incarnation of the node. The other node keeps its shard.
func (r *rig) restartBeside() {
	r.t.Helper()
	if err := r.st.Unregister(r.t.Context(), r.cfg.Ref.Node, r.lease); err != nil {
		r.t.Fatal(err)
	}
	r.commit, r.refence, r.verify, r.loads, r.held = nil, nil, nil, nil, map[model.RunID]*holding{}
	r.spare = lane.Output{}
	r.register(model.NodeID{13: 2, 15: 1})
	r.acquire(0, 1, 2)
	r.settle()
}

func (r *rig) deadLetters() []store.InboxRow {
	r.t.Helper()
	rows, err := r.st.LoadDeadLetters(r.t.Context(), model.RunID{}, 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	return rows
}

// newerSignal is a signal under a kind that this build does not know.
func newerSignal(a model.Address, name string) *model.Message {
	return &model.Message{Kind: 250, To: a, Name: name}
}

// upgrade lets the lane read messages of the newer kind as signals.
func (r *rig) upgrade() {
	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if ld.Kind != lane.LoadMail {
			return nil
		}
		res := engine.Read(r.t.Context(), r.st, *ld, r.now)
		for i := range res.Inbox {
			if row := &res.Inbox[i]; row.Damaged != nil && row.Damaged.Newer {
				row.Damaged, row.Message.Kind = nil, model.MessageSignal
			}
		}
		return &res
	}
}

// Messages that cannot be read are set aside as dead letters with their bytes. The messages behind
// them take effect in their order, each once.
func TestDamagedMessagesAreSetAside(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	r.join(1)
	a := in(0, 0)
	r.startRun(a)
	s := signals(a, 1, 5)
	f.sendDamaged(0, nil, &s[0], nil, nil, &s[1], &s[2], nil)
	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, receivedNames(1, 3)...)
	if at := r.cursor(0, 3); at != -1 {
		t.Errorf("the cursor stands at %d, want all consumed", at)
	}
	letters := r.deadLetters()
	if len(letters) != 4 {
		t.Fatalf("%d dead letters, want 4", len(letters))
	}

	for _, l := range letters {
		if string(l.Message.Input.Data) != "\xff\x01" || !strings.Contains(l.Message.ID, "from shard 3 to shard 0") {
			t.Errorf("kept as %+v", l)
		}
	}

	if len(r.aside) != 4 {
		t.Errorf("told of %v", r.aside)
	}

	// Later messages continue, also on a node that has just taken over.
	r.restartBeside()
	f.sendDamaged(0, nil, &s[3])
	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, receivedNames(1, 4)...)
	if n := len(r.deadLetters()); n != 5 {
		t.Errorf("%d dead letters, want 5", n)
	}
	if r.l.PendingBytes() != 0 {
		t.Errorf("%d bytes are held by nothing", r.l.PendingBytes())
	}
}

// A message of a newer build waits, while the messages behind it take effect. As soon as a node can
// read the message, it takes effect, exactly once.
func TestNewerMessageWaitsForTheUpgrade(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	r.join(1)
	a := in(0, 0)
	r.startRun(a)
	s := signals(a, 1, 3)
	f.sendDamaged(0, &s[0], newerSignal(a, "new"), &s[1])
	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, receivedNames(1, 2)...)

	for range 3 { // the lane tries it again, and reports it once
		r.pass(61 * time.Second)
		r.l.MailWaits()
		r.settle()
	}

	if len(r.deadLetters()) != 0 || len(r.aside) != 1 || !r.aside[0].Newer {
		t.Errorf("%d dead letters, told of %v", len(r.deadLetters()), r.aside)
	}
	r.restartBeside()
	r.upgrade()
	r.join(1)
	r.pass(61 * time.Second)
	r.l.MailWaits()
	r.settle()
	want := append(receivedNames(1, 2), "signal_received new")
	r.wantEvents(a, want...)
	r.pass(200 * time.Second)
	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, want...)
}

// The store refuses a batch that sets a message aside. This harms no other address: earlier
// messages and other messages continue, and the lane tries the batch again.
func TestSetAsideIsRefused(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	r.join(1)
	a := in(0, 0)
	r.startRun(a)
	s := signals(a, 1, 3)
	refusals := 0

	r.refuse = func(b *store.Batch) error {
		if len(b.Deferred) > 0 && refusals < 3 {
			refusals++
			if len(b.Events)+len(b.Starts) > 0 {
				t.Error("what is set aside shares a batch with others")
			}
			return store.Errorf(store.Refused, "commit", "injected")
		}
		return nil
	}

	f.sendDamaged(0, &s[0], nil, &s[1])
	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, receivedNames(1, 1)...)
	r.signal(a, "direct", "direct")
	r.settle()
	r.wantAnswer("direct", "")

	for range 3 {
		r.pass(61 * time.Second)
		r.l.MailWaits()
		r.settle()
	}

	r.wantEvents(a, "signal_received 1", "signal_received direct", "signal_received 2")
	if n := len(r.deadLetters()); n != 1 || refusals != 3 {
		t.Errorf("%d dead letters after %d refusals", n, refusals)
	}
}

// The lane sets unreadable requests of other processes aside. Their rows stay in the inbox.
func TestDamagedRequestsAreSetAside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := in(0, 0)
	r.startRun(a)

	rows := []store.InboxRow{
		{Shard: 0, ID: r.newRun(), Damaged: &model.Damaged{Raw: []byte{0xff}}},
		{Shard: 0, ID: r.newRun(), Message: *newerSignal(a, "new")},
		{Shard: 0, ID: r.newRun(), Message: signals(a, 1, 1)[0]},
	}
	if err := r.st.PutInbox(t.Context(), rows); err != nil {
		t.Fatal(err)
	}

	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, receivedNames(1, 1)...)
	letters := r.deadLetters()
	if len(letters) != 1 || letters[0].ID != rows[0].ID || string(letters[0].Damaged.Raw) != "\xff" {
		t.Errorf("dead letters %+v", letters)
	}
	r.upgrade()
	r.pass(61 * time.Second)
	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, "signal_received 1", "signal_received new")
}

// An unreadable item of a mailbox does not hold up the calls behind it.
func TestDamagedItemsAreSetAside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := ledger("k")
	for _, in := range []string{"1", "2", "3"} {
		r.operation(a, "add", in, in, oneWay)
	}
	r.settle()
	items := r.mailbox(a)
	if len(items) != 3 {
		t.Fatalf("%d items", len(items))
	}

	shard := a.Shard(shards)
	key := store.EntityKey{Shard: shard, Address: a}
	r.restart()

	// The second item is damaged, and the third is of a newer build.
	f := &store.Batch{Lane: r.cfg.Ref, Number: 1, At: r.now}
	bad, late := items[1], items[2]
	bad.Damaged = &model.Damaged{Raw: []byte{0xff}}
	late.Message.Kind = 250
	f.Taken = []store.MailboxKey{{EntityKey: key, Seq: bad.Seq}, {EntityKey: key, Seq: late.Seq}}
	f.Mailbox = []store.MailboxRow{{EntityKey: key, Item: bad}, {EntityKey: key, Item: late}}
	if _, err := r.st.Commit(t.Context(), f); err != nil {
		t.Fatal(err)
	}

	r.crashFenced()
	r.joinEntities(1)
	r.settle()
	r.work()
	r.wantState(a, "1;")
	if left := r.mailbox(a); len(left) != 0 {
		t.Errorf("the mailbox has %+v", left)
	}
	letters := r.deadLetters()
	if len(letters) != 1 || letters[0].Message.To != a {
		t.Errorf("dead letters %+v", letters)
	}
	if len(r.aside) != 2 {
		t.Errorf("told of %+v", r.aside)
	}

	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if ld.Kind != lane.LoadMail {
			return nil
		}
		res := engine.Read(t.Context(), r.st, *ld, r.now)
		for i := range res.Inbox {
			res.Inbox[i].Damaged, res.Inbox[i].Message.Kind = nil, model.MessageCall
		}
		return &res
	}

	r.pass(61 * time.Second)
	r.l.MailWaits()
	r.settle()
	r.work()
	r.wantState(a, "1;3;")
}

// The lane accepts a page that skips unreadable rows. If a page is not complete, the lane reads the
// page again.
func TestPagesWithoutRowsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, kind := range []lane.LoadKind{lane.LoadRunnable, lane.LoadTimers, lane.LoadMailboxes, lane.LoadMail} {
		r := newRig(t)
		r.join(1)
		a := key("a")
		r.timersIn(a, 10)
		r.restart()
		broken, reads := true, 0

		r.reads = func(ld *lane.Load) *lane.LoadResult {
			if ld.Kind != kind {
				return nil
			}
			reads++
			res := engine.Read(t.Context(), r.st, *ld, r.now)
			if broken { // the file is damaged, so it is unknown what is missing
				return &lane.LoadResult{Err: store.Errorf(store.Away, "load", "%w", fault.New(fault.Corrupt, "the file is damaged"))}
			}
			var skipped store.Skipped
			skipped.Note(fault.New(fault.Corrupt, "an id is none"))
			res.Err = skipped.Err("load")
			return &res
		}

		r.join(1)
		r.settle()
		r.pass(time.Second)
		if reads < 2 {
			t.Errorf("kind %d: a page that is not whole is read %d times", kind, reads)
		}
		broken = false
		r.pass(20 * time.Second)
		r.wantEvents(a, "timer_fired t10")
	}
}

// The lane skips rows whose address belongs to another shard, and reports each of them once.
func TestMisplacedRows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, other := in(0, 0), in(1, 0)
	r.timersIn(a, 10)
	r.restart()

	r.reads = func(ld *lane.Load) *lane.LoadResult {
		res := engine.Read(t.Context(), r.st, *ld, r.now)
		run := r.newRun()
		switch ld.Kind {
		case lane.LoadRunnable:
			res.Runnable = append(res.Runnable, store.RunHead{RunKey: store.RunKey{Shard: 0, Run: run}, Address: other})
		case lane.LoadTimers:
			res.Timers = slices.Insert(res.Timers, 0, store.Timer{Shard: 0, Run: run, ID: "bad", Due: r.now, Address: other})
		case lane.LoadMailboxes:
			res.Mailboxes = append(res.Mailboxes, store.EntityKey{Shard: 0, Address: other})
		default:
			return nil
		}
		return &res
	}

	r.join(1)
	r.settle()
	r.pass(20 * time.Second)
	r.wantEvents(a, "timer_fired t10")
	if len(r.aside) != 3 {
		t.Errorf("told of %+v", r.aside)
	}
	if n := r.l.Entries(); n != 1 {
		t.Errorf("%d addresses are in memory, want only %s, which a worker holds", n, a)
	}
}

// The store refuses batches that only remove remembered answers. These batches have nothing to do
// with messages that cannot be read, so the lane sets such messages aside without delay.
func TestRefusedTidyingDelaysNoMessage(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	r.join(1)
	a := in(0, 0)
	r.startRun(a)
	for i := range 2 {
		id := fmt.Sprint("request ", i)
		r.send(model.Message{Kind: model.MessageSignal, To: a, Name: id, RequestID: id, Drawn: true}, id)
		r.settle()
		r.l.Tidy()
		r.flush()
		if r.commit == nil || len(r.commit.Forgets) != 1 {
			t.Fatalf("the lane commits %+v, want the removal of an answer", r.commit)
		}
		r.fail(store.Refused)
		r.settle()
	}

	f.sendDamaged(0, nil)
	r.l.MailWaits()
	r.settle()
	if n := len(r.deadLetters()); n != 1 {
		t.Errorf("%d dead letters, want the message that cannot be read", n)
	}
}

// A batch sets several messages aside, and the store never takes it in time. The lane sends it
// again with only one of the messages.
func TestSetAsideIsSplit(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	r.join(1)
	a := in(0, 0)
	r.startRun(a)
	s := signals(a, 1, 3)

	r.refuse = func(b *store.Batch) error {
		if len(b.Deferred) > 1 {
			return store.Errorf(store.Unknown, "commit", "injected")
		}
		return nil
	}

	f.sendDamaged(0, &s[0], nil, nil, &s[1])
	r.l.MailWaits()
	r.settle()

	for range 3 {
		r.pass(61 * time.Second)
		r.l.MailWaits()
		r.settle()
	}

	r.wantEvents(a, receivedNames(1, 2)...)
	if n := len(r.deadLetters()); n != 2 {
		t.Errorf("%d dead letters, want 2", n)
	}
}

// After the store has refused several messages in one batch, the lane sets them aside one by one.
// Later messages share a batch again.
func TestSetAsideTogetherAgain(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	r.join(1)
	a := in(0, 0)
	r.startRun(a)
	most, refusing := 0, true
	r.refuse = func(b *store.Batch) error {
		if len(b.Deferred) > 1 && refusing {
			return store.Errorf(store.Refused, "commit", "injected")
		}
		most = max(most, len(b.Deferred))
		return nil
	}

	for want := 3; want <= 6; want += 3 {
		f.sendDamaged(0, nil, nil, nil)
		for range 4 {
			r.l.MailWaits()
			r.settle()
			r.pass(61 * time.Second)
		}
		if n := len(r.deadLetters()); n != want {
			t.Errorf("%d dead letters, want %d", n, want)
		}
		refusing = false
	}
	if most != 3 {
		t.Errorf("at most %d were set aside in a batch, want 3", most)
	}
}
