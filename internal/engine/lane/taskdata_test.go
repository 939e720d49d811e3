package lane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

func writeOf(c model.Claim, first int64, items ...model.TaskItem) model.Message {
	return model.Message{Kind: model.MessageWrite, To: c.Ref.Address, ToRun: c.Ref.Run, Write: &model.TaskWrite{Ref: c.Ref, First: first, Items: items}}
}

func logItem(text string) model.TaskItem { return model.TaskItem{Kind: model.ItemLog, Text: text} }

func streamItem(text string) model.TaskItem {
	return model.TaskItem{Kind: model.ItemToken, Value: model.TextPayload(text)}
}

func stateItem(name, value string) model.TaskItem {
	return model.TaskItem{Kind: model.ItemSet, Name: name, Value: model.TextPayload(value)}
}

// data returns what the store has of a task: states, log lines, streamed items.
func (r *rig) data(c model.Claim) string {
	r.t.Helper()
	key := store.RunKey{Shard: c.Ref.Address.Shard(shards), Run: c.Ref.Run}
	states, err := r.st.LoadTaskData(r.t.Context(), key, store.StateRange(c.Ref.ID))
	if err != nil {
		r.t.Fatal(err)
	}
	items, err := r.st.LoadTaskData(r.t.Context(), key, store.StreamRange(c.Ref.ID, 0, 0))
	if err != nil {
		r.t.Fatal(err)
	}

	lines, err := r.st.LoadLogs(r.t.Context(), key, c.Ref.ID, store.LogPlace{}, 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for i := range states {
		out = append(out, states[i].Name+"="+string(states[i].Value.Data))
	}
	for i := range lines {
		out = append(out, lines[i].Text)
	}

	for i := range items {
		it, err := items[i].StreamItem()
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, fmt.Sprint(it.Position, string(it.Value.Data)))
	}

	return strings.Join(out, " ")
}

func (r *rig) wantData(c model.Claim, want string) {
	r.t.Helper()
	if got := r.data(c); got != want {
		r.t.Errorf("stored is %q, want %q", got, want)
	}
}

// writer returns a lane with a task that a worker executes.
func writer(t tb) (*rig, *bench, model.Claim) {
	r, b := newBench(t, 1)
	r.join(1)
	r.startRun(key("bad"))
	r.send(theTask("t"), "t")
	r.settle()
	return r, b, b.one()
}

// The lane answers a write of a claim when the write is durable. A repetition gets an answer too.
// For the next write the lane does not read the data again.
func TestWrites(t *testing.T) {
	t.Parallel()
	r, b, c := writer(t)
	r.send(writeOf(c, 1, stateItem("n", "1"), logItem("a"), streamItem("x")), "first")
	r.flush()
	if len(r.loads) != 1 || r.loads[0].Kind != lane.LoadWritten {
		t.Fatalf("reads %+v, want what was written before", r.loads)
	}
	r.read()
	r.send(writeOf(c, 1, stateItem("n", "1"), logItem("a"), streamItem("x")), "again")
	r.send(writeOf(c, 3, streamItem("x"), stateItem("n", "2"), logItem("b")), "more")
	r.flush()
	r.wantSilence("first", "again", "more")
	if len(r.loads) != 0 {
		t.Errorf("reads %+v", r.loads)
	}
	r.settle()
	for _, token := range []string{"first", "again", "more"} {
		r.wantAnswer(token, "")
	}
	r.wantData(c, "n=2 a b 1x")
	b.report(c, failed)
	r.settle()
	r.send(writeOf(c, 9, logItem("late")), "late")
	r.settle()
	r.wantAnswer("late", "not_owned")

	// The next claim continues with the stored data, and numbers its writes from the beginning.
	r.now = r.now.Add(2 * time.Second)
	b.propose()
	r.settle()
	next := b.one()
	r.send(writeOf(c, 10, logItem("late")), "later")
	r.send(writeOf(next, 1, model.TaskItem{Kind: model.ItemClear}, logItem("c"), streamItem("y")), "next")
	r.settle()
	r.wantAnswer("later", "not_owned")
	r.wantAnswer("next", "")
	r.wantData(next, "a b c 1x 2y")
	b.report(next)
	r.settle()
	r.send(writeOf(next, 4, logItem("late")), "closed")
	r.settle()
	r.wantAnswer("closed", "not_owned")
	r.wantData(next, "a b c 1x 2y")
}

// The lane stores the answer to a write of another process under the request id, and sends the node
// a hint.
func TestWriteByMail(t *testing.T) {
	t.Parallel()
	r, _, c := writer(t)
	k := r.post(writeOf(c, 1, logItem("a"), stateItem("n", "1")), "w1")
	r.settle()
	if a := r.rememberedAnswer(k); a == nil || a.Failure != nil {
		t.Fatalf("the answer is %+v", a)
	}

	r.wantHint(c.Ref.Address)
	k = r.post(writeOf(c, 1, logItem("a")), "w2") // the sender repeats it, because it got no answer in time
	r.settle()
	if a := r.rememberedAnswer(k); a == nil || a.Failure != nil {
		t.Fatalf("the answer to a repetition is %+v", a)
	}
	r.wantData(c, "n=1 a")
	stale := c
	stale.Ref.Claim++
	k = r.post(writeOf(stale, 1, logItem("b")), "w3")
	r.settle()
	if a := r.rememberedAnswer(k); a == nil || a.Failure == nil || a.Failure.Kind != "not_owned" {
		t.Fatalf("the answer to a stale claim is %+v", a)
	}
}

// The store refuses a batch because of a row of another address. The lane still writes the data,
// once.
func TestWritesBesidePoison(t *testing.T) {
	t.Parallel()
	r, _, c := writer(t)
	r.send(writeOf(c, 1, logItem("a")), "first")
	r.settle()
	r.refuse = poison("poison")
	r.turn(key("bad"), steps("poison"))
	r.send(writeOf(c, 2, logItem("b"), stateItem("n", "1")), "second")
	r.send(writeOf(c, 4, stateItem("n", "2"), streamItem("x")), "third")
	r.settle()
	for _, token := range []string{"first", "second", "third"} {
		r.wantAnswer(token, "")
	}
	r.wantData(c, "n=2 a b 1x")
}

// A row that the store refuses affects only its own task.
func TestPoisonousWrite(t *testing.T) {
	t.Parallel()
	r, _, c := writer(t)
	r.refuse = func(b *store.Batch) error {
		if slices.ContainsFunc(b.Logs, func(l store.LogRow) bool { return l.Text == "poison" }) {
			return store.Errorf(store.Refused, "commit", "poison")
		}
		return nil
	}
	r.send(writeOf(c, 1, logItem("poison")), "bad")
	r.turn(key("bad"), steps("fine"))
	r.settle()
	r.wantAnswer("bad", "blocked")
	r.wantData(c, "")
	r.wantEvents(key("bad"), "step_completed fine")
}

// The lane informs a watcher of its own process once, after the next commit and not before. It
// informs another node of each commit, as long as that node renews its watch.
func TestWatchers(t *testing.T) {
	t.Parallel()
	r, _, c := writer(t)
	if err := r.l.Watch(c.Ref.Address, "one"); err != nil {
		t.Fatal(err)
	}
	if err := r.l.Watch(c.Ref.Address, "gone"); err != nil {
		t.Fatal(err)
	}

	r.l.Unwatch(c.Ref.Address, "gone")
	r.post(model.Message{Kind: model.MessageWatch, To: c.Ref.Address, Name: model.WatchChanges}, "w")
	r.settle()
	r.wantAnswer("one", "") // the commit that notes the watch of the other node
	r.hints = nil
	if err := r.l.Watch(c.Ref.Address, "two"); err != nil {
		t.Fatal(err)
	}

	r.send(writeOf(c, 1, logItem("a")), "first")
	r.flush()
	r.read()
	r.wantSilence("two", "first")
	r.commitNow()
	r.wantAnswer("two", "")
	r.wantHint(c.Ref.Address)
	r.hints = nil
	r.now = r.now.Add(3 * time.Minute)
	r.send(writeOf(c, 2, logItem("b")), "second")
	r.settle()
	if len(r.hints) > 0 {
		t.Errorf("a node that no longer listens gets a hint: %v", r.hints)
	}
	if err := r.l.Watch(c.Ref.Address, "three"); err != nil {
		t.Fatal(err)
	}

	r.giveUp(c.Ref.Address.Shard(shards))
	r.wantAnswer("three", "")
	if err := r.l.Watch(c.Ref.Address, "four"); err == nil {
		t.Error("a shard that is given up is listened to")
	}
	r.wantSilence("gone")
}

// The lane also forgets a node that watches data that never changes.
func TestWatchersOfWhatNeverChanges(t *testing.T) {
	t.Parallel()
	r, _, _ := writer(t)
	if err := r.l.Watch(key("here"), "here"); err != nil {
		t.Fatal(err)
	}

	for i := range 300 {
		r.post(model.Message{Kind: model.MessageWatch, To: key(fmt.Sprint(i)), Name: model.WatchChanges}, fmt.Sprint(i))
		r.settle()
		r.now = r.now.Add(10 * time.Second)
	}

	if n := r.l.Watchers(); n < 12 || n > 100 {
		t.Errorf("%d addresses are listened to, of which 12 were named in the last two minutes", n)
	}
	r.wantSilence("here")
	r.start(key("here"), "start")
	r.settle()
	r.wantAnswer("here", "")
}

// Whatever happens to commits, the store has each written item once, in order. Writers repeat a
// write that gets no answer.
func TestWritesSurviveTrouble(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r, _, c := writer(rt)
		var items []model.TaskItem
		var want []string
		for i := range rapid.IntRange(1, 8).Draw(rt, "items") {
			items = append(items, logItem(fmt.Sprint(i)))
			want = append(want, fmt.Sprint(i))
		}

		n := 0
		for told := 0; told < len(items); {
			from, to := rapid.IntRange(0, told).Draw(rt, "from"), rapid.IntRange(told+1, len(items)).Draw(rt, "to")
			token := fmt.Sprint("w", n)
			n++
			r.send(writeOf(c, int64(from)+1, items[from:to]...), token)
			r.flush()
			if len(r.loads) > 0 {
				r.read()
			}

			switch rapid.IntRange(0, 3).Draw(rt, "trouble") {
			case 0:
				if r.commit != nil {
					r.fail(store.Retryable)
				}
			case 1:
				if r.commit != nil { // the commit lands, and its result is lost
					if _, err := r.land(); err != nil {
						rt.Fatal(err)
					}
					r.l.FinishCommit(r.now, store.Committed{}, store.Errorf(store.Unknown, "commit", "injected"))
					r.flush()
				}
			case 2:
				if r.commit != nil {
					r.fail(store.Unknown)
				}
			}

			if rapid.Bool().Draw(rt, "wait") || to == len(items) {
				// after several failures a commit is tried again a little later
				r.pass(2 * time.Second)
				r.wantAnswer(token, "")
			}

			told = to
		}

		r.pass(2 * time.Second)
		r.wantData(c, strings.Join(want, " "))
	})
}
