package lane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// foreignNode is another node. It owns a shard and sends messages to the shards of our node.
type foreignNode struct {
	r     *rig
	ref   store.LaneRef
	shard model.ShardID
	sent  map[model.ShardID]int64
	batch int64
}

// foreignRig returns a rig that owns all shards except the last, and the node that owns the last.
func foreignRig(t *testing.T, change ...func(*lane.Config)) (*rig, *foreignNode) {
	t.Helper()
	r := newRig(t, change...)
	r.giveUp(3)
	r.settle()
	f := &foreignNode{r: r, shard: 3, sent: map[model.ShardID]int64{}}
	id := model.NodeID{15: 99}
	reg, err := r.st.Register(t.Context(), store.NodeInfo{ID: id}, 1, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	f.ref = store.LaneRef{Node: id, Epoch: reg.Epoch}
	if _, err := r.st.Acquire(t.Context(), id, reg.Epoch, []model.ShardID{3}); err != nil {
		t.Fatal(err)
	}
	return r, f
}

// send commits messages of the other node, and returns the rows.
func (f *foreignNode) send(ms ...model.Message) []store.MessageRow {
	f.r.t.Helper()
	f.batch++
	b := &store.Batch{Lane: f.ref, Number: f.batch, At: f.r.now}
	for _, m := range ms {
		to := m.To.Shard(shards)
		f.sent[to]++
		b.Messages = append(b.Messages, store.MessageRow{To: to, From: f.shard, Seq: f.sent[to], Message: m})
	}
	if _, err := f.r.st.Commit(f.r.t.Context(), b); err != nil {
		f.r.t.Fatal(err)
	}
	return b.Messages
}

func signals(a model.Address, from, to int) (ms []model.Message) {
	for i := from; i <= to; i++ {
		ms = append(ms, model.Message{Kind: model.MessageSignal, To: a, Name: fmt.Sprint(i)})
	}
	return ms
}

func receivedNames(from, to int) (names []string) {
	for i := from; i <= to; i++ {
		names = append(names, fmt.Sprint("signal_received ", i))
	}
	return names
}

func (r *rig) cursor(to, from model.ShardID) int64 {
	r.t.Helper()
	rows, _, err := r.st.LoadMessages(r.t.Context(), []model.ShardID{to}, 100_000, 1<<30)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range rows {
		if m.From == from {
			return m.Seq - 1
		}
	}
	return -1 // no message of this channel is left in the store
}

// Messages take effect in the order of their channel, each once, even if hints are lost, doubled or
// out of order.
func TestHintsOfMessages(t *testing.T) {
	t.Parallel()
	hints := map[string]func(r *rig, rows []store.MessageRow){
		"none, but the poll":   func(r *rig, _ []store.MessageRow) { r.l.MailWaits() },
		"in order":             func(r *rig, rows []store.MessageRow) { r.l.Messages(rows) },
		"doubled":              func(r *rig, rows []store.MessageRow) { r.l.Messages(slices.Concat(rows, rows)) },
		"backwards":            func(r *rig, rows []store.MessageRow) { slices.Reverse(rows); r.l.Messages(rows) },
		"only the last":        func(r *rig, rows []store.MessageRow) { r.l.Messages(rows[len(rows)-1:]) },
		"only the first":       func(r *rig, rows []store.MessageRow) { r.l.Messages(rows[:1]); r.settle(); r.l.MailWaits() },
		"a gap":                func(r *rig, rows []store.MessageRow) { r.l.Messages(slices.Concat(rows[:3], rows[5:])) },
		"and the poll":         func(r *rig, rows []store.MessageRow) { r.l.MailWaits(); r.l.Messages(rows); r.l.MailWaits() },
		"again after they are": func(r *rig, rows []store.MessageRow) { r.l.Messages(rows); r.settle(); r.l.Messages(rows) },
	}
	for name, hint := range hints {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, f := foreignRig(t)
			r.join(1)
			a, b := in(0, 0), in(0, 1)
			r.startRun(a)
			r.startRun(b)

			ms := slices.Concat(signals(a, 1, 5), signals(b, 1, 5), signals(a, 6, 9))
			hint(r, f.send(ms...))
			r.settle()

			r.wantEvents(a, receivedNames(1, 9)...)
			r.wantEvents(b, receivedNames(1, 5)...)
			if at := r.cursor(0, 3); at != -1 {
				t.Errorf("the cursor stands at %d, want all %d consumed", at, len(ms))
			}
			if r.l.PendingBytes() != 0 {
				t.Errorf("%d bytes are held by nothing", r.l.PendingBytes())
			}
		})
	}
}

// The cursor advances in the commit that consumes a message. So no message takes effect twice if
// the process restarts before or after the commit.
func TestCursorTravelsWithTheCommit(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	a := in(0, 0)
	r.startRun(a)
	rows := f.send(signals(a, 1, 4)...)
	r.l.Messages(rows[:2])
	r.settle()
	r.l.Messages(rows[2:])
	r.flush()
	if r.commit == nil || len(r.commit.Cursors) != 1 || r.commit.Cursors[0] != (store.CursorRow{To: 0, From: 3, Prev: 2, Next: 4}) {
		t.Fatalf("batch = %+v, want the cursor to go from 2 to 4", r.commit)
	}

	r.commit = nil // the process dies before the commit
	old := r.cfg.Ref
	if err := r.st.Unregister(t.Context(), old.Node, old.Epoch); err != nil {
		t.Fatal(err)
	}
	r.register(model.NodeID{15: 50})
	r.loads, r.held, r.spare = nil, map[model.RunID]*holding{}, lane.Output{}
	r.acquire(0, 1, 2)
	r.settle()
	r.wantEvents(a, receivedNames(1, 4)...)
}

// A message that cannot be applied yet lets messages of other channels pass. The messages behind it
// in its own channel wait.
func TestMessagesWaitInTheirOwnChannel(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	r.join(1)
	slow, quick, own := in(0, 0), in(0, 1), in(1, 0)
	for _, a := range []model.Address{slow, quick, own} {
		r.startRun(a)
	}
	r.release(slow, "s")
	r.settle()
	r.l.Messages(f.send(slices.Concat(signals(slow, 1, 1), signals(quick, 1, 1))...))
	r.turn(own, commandTurn(signalTo(quick, "m", "2")))
	r.flush()
	held := r.loads // the read of the slow address is late
	r.loads = nil
	if len(held) == 0 {
		t.Fatal("the slow one is not read")
	}

	for range 3 {
		if r.commit != nil {
			r.commitNow()
		}
		r.flush()
	}

	r.wantEvents(quick, "signal_received 2")
	r.wantEvents(slow)
	r.loads = append(held, r.loads...)
	r.settle()
	r.wantEvents(slow, "signal_received 1")
	r.wantEvents(quick, "signal_received 2", "signal_received 1")
}

// There is more mail than one page can have. The lane takes all of it, and does not read the same
// page over and over.
func TestMoreMailThanAPage(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	a := in(0, 0)
	r.startRun(a)
	const n = 1300
	for i := 0; i < n; i += 100 {
		f.send(signals(a, i+1, i+100)...)
	}
	reads := 0

	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if ld.Kind == lane.LoadMail {
			reads++
		}
		return nil
	}

	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, receivedNames(1, n)...)
	if reads > 3*n/64+10 {
		t.Errorf("%d reads for %d messages", reads, n)
	}
}

// The lane consumes messages to an address that does not exist, and to a run that is over.
func TestMessagesThatTakeNoEffect(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	r.join(1)
	ghost, a, child := in(0, 0), in(0, 1), in(3, 0)
	r.startRun(a)
	link := model.Link{Address: child, Run: model.RunID{9}, ID: "w"}

	r.l.Messages(f.send(
		model.Message{Kind: model.MessageSignal, To: ghost, Name: "1"},
		model.Message{Kind: model.MessageClosed, To: a, ToRun: model.RunID{8}, ID: "x"},
		model.Message{Kind: model.MessageNothing, To: a},
		model.Message{Kind: model.MessageWatch, To: ghost, From: link},
		model.Message{Kind: model.MessageSignal, To: a, Name: "2"},
	))

	r.settle()
	r.wantEvents(a, "signal_received 2")
	if r.cursor(0, 3) != -1 {
		t.Error("not all are consumed")
	}
	if len(r.mail) != 1 || r.mail[0].To != 3 || r.mail[0].Message.Kind != model.MessageClosed || r.mail[0].Message.ID != "w" {
		t.Errorf("mail for others = %+v, want the answer to the watcher", r.mail)
	}
}

// The lane serves a request of another process once, remembers the answer, and sends the waiting
// process a hint.
func TestInbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)

	keys := []store.RequestKey{
		r.put(model.Message{Kind: model.MessageSignal, To: a, Name: "s"}, "req-1"),
		r.put(model.Message{Kind: model.MessageSettle, To: a, Name: "p"}, "req-2"),
		r.put(model.Message{Kind: model.MessageSettle, To: a, Name: "p"}, "req-3"),
		r.put(model.Message{Kind: model.MessageStart, To: a, Input: model.Payload{Data: []byte("other")}}, "req-4"),
		r.put(model.Message{Kind: model.MessageWatch, To: a}, "req-5"),
	}

	r.l.MailWaits()
	r.l.MailWaits()
	r.settle()
	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, "signal_received s", "promise_settled p")
	got, err := r.st.LoadReplies(t.Context(), keys)
	if err != nil || len(got) != 5 {
		t.Fatalf("remembered answers: %+v, %v", got, err)
	}

	for i, want := range []string{"", "", "conflict", "conflict", ""} {
		ans, err := model.DecodeAnswer(got[i].Body)
		if err != nil {
			t.Fatal(err)
		}
		kind := ""
		if ans.Failure != nil {
			kind = ans.Failure.Kind
		}
		if kind != want {
			t.Errorf("answer to %s = %q, want %q", got[i].ID, kind, want)
		}
	}

	if len(r.hints) != 5 || r.hints[0].Node != guest {
		t.Errorf("hints = %+v, want five for the node that asked", r.hints)
	}

	// The watcher learns that the run has ended.
	r.hints = nil
	r.turn(a, model.Turn{Close: done()})
	r.settle()
	if len(r.hints) != 1 || r.hints[0].Node != guest || r.hints[0].Address != a {
		t.Errorf("hints after the end = %+v, want one for the node that waits", r.hints)
	}

	// The other process sends the same request again. The lane sees that it has served the request,
	// and only removes the row.
	r.put(model.Message{Kind: model.MessageSignal, To: a, Name: "s"}, "req-1")
	r.l.MailWaits()
	r.settle()
	if left, _, _ := r.st.LoadInbox(t.Context(), []model.ShardID{0, 1, 2, 3}, r.now, 10, 1<<30); len(left) != 0 {
		t.Errorf("inbox = %+v", left)
	}
}

// The lane reads a row again before its request is committed, and serves the request once.
func TestInboxReadTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := key("a")
	r.startRun(a)
	row := store.InboxRow{Shard: a.Shard(shards), ID: r.newRun(), Message: model.Message{Kind: model.MessageSignal, To: a, Name: "s"}}
	if err := r.st.PutInbox(t.Context(), []store.InboxRow{row}); err != nil {
		t.Fatal(err)
	}

	r.l.MailWaits()
	r.flush()
	r.read()
	r.l.MailWaits() // while the commit is in flight
	r.flush()
	late := r.loads
	r.loads = nil
	read := lane.LoadResult{Inbox: []store.InboxRow{row}} // what the read saw before the commit
	r.commitNow()
	r.settle()
	for _, ld := range late {
		r.l.FinishLoad(r.now, ld.ID, read)
	}
	r.settle()
	r.wantEvents(a, "signal_received s")
}

// Messages for one shard come faster than the lane can take them. The lane still reads the messages
// for its other shards.
func TestMailForOneShardDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	r.join(2)
	busy, quiet := in(0, 0), in(2, 0)
	r.startRun(busy)
	r.startRun(quiet)
	const page = 500
	last := 2 * page
	f.send(signals(busy, 1, last)...)
	f.send(model.Message{Kind: model.MessageSignal, To: quiet, Name: "quiet"})

	commits := 0
	r.refuse = func(b *store.Batch) error {
		taken := 0
		for i := range b.Cursors {
			switch c := &b.Cursors[i]; c.To {
			case 0:
				taken = int(c.Next - c.Prev)
			case 2:
				r.refuse = nil
				return nil
			}
		}

		if commits++; commits > 100 {
			t.Error("the message for another shard is not read")
			r.refuse = nil
			return nil
		}

		f.send(signals(busy, last+1, last+taken)...)
		last += taken
		return nil
	}
	r.l.MailWaits()
	r.settle()
	r.wantEvents(quiet, "signal_received quiet")
	t.Logf("after %d commits", commits)
}
