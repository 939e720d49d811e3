package lane_test

import (
	"strconv"
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

func data(n int) model.Payload { return model.Payload{Data: make([]byte, n)} }

// waitingTurn returns a turn of code that waits for a signal.
func waitingTurn(commands ...model.Command) model.Turn {
	return model.Turn{Commands: commands, Waits: []model.Reason{{Code: model.WaitSignal, Name: "s"}}}
}

// Only the address of a run is in memory while no worker can continue it. The lane still records
// inputs for the run, and a worker that offers its workflow gets all events.
func TestStrandedRunsLeaveMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const runs = 20

	for i := range runs {
		r.send(model.Message{Kind: model.MessageStart, To: key(strconv.Itoa(i)), Input: data(100 << 10)}, i)
	}
	r.settle()
	if got := r.l.Resident(); got != 0 || r.l.Entries() != runs {
		t.Errorf("%d of %d runs are in memory", got, r.l.Entries())
	}
	a := key("3")
	r.signal(a, "s", "signal")
	r.settle()
	r.wantAnswer("signal", "")
	if why, ok := r.l.Explain(a); !ok || why[0].Code != model.WaitWorker || r.l.Resident() != 0 {
		t.Errorf("explained as %v, %d runs are in memory", why, r.l.Resident())
	}

	r.order(model.MessagePause, a, "pause")
	r.settle()
	if why, ok := r.l.Explain(a); !ok || why[0].Code != model.WaitPaused {
		t.Errorf("explained as %v", why)
	}
	r.order(model.MessageResume, a, "resume")
	r.settle()
	r.join(1)
	r.settle()

	for i := range runs {
		r.wantHolder(key(strconv.Itoa(i)), 1)
	}
	r.wantEvents(a, "signal_received s", "paused", "resumed")
}

// A blocked run is not in memory either, and events do not wake it.
func TestBlockedRunsLeaveMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.KeepIdle = 1 })
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.block(a)
	r.settle()
	if r.l.Resident() != 0 {
		t.Error("it is in memory")
	}
	r.signal(a, "s", "signal")
	r.settle()
	r.wantHolder(a, 0)
	if why, _ := r.l.Explain(a); len(why) != 1 || why[0] != mismatch || r.l.Resident() != 0 {
		t.Errorf("explained as %v, %d runs are in memory", why, r.l.Resident())
	}
	r.join(2)
	r.settle()
	if r.holder(a) == 0 {
		t.Error("no worker holds it")
	}
}

// Histories that workers hold are bounded in bytes. Runs that wait make room for others. A run
// whose worker runs a step makes no room, so other runs wait in a line.
func TestRoomForHistories(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxHeld, c.KeepIdle = 30<<10, 1 })
	r.join(1)

	const runs = 6
	for i := range runs {
		r.send(model.Message{Kind: model.MessageStart, To: key(strconv.Itoa(i)), Input: data(10 << 10)}, i)
		r.settle()
	}

	used, line := r.l.Room()
	if len(r.held) != 3 || line != 3 || used < 30<<10 || used > 45<<10 || r.l.Resident() != 3 {
		t.Fatalf("%d are held, of %d bytes; %d are in line, %d in memory", len(r.held), used, line, r.l.Resident())
	}
	r.signal(key("5"), "s", "signal")
	r.settle()
	r.wantAnswer("signal", "") // inputs for a run in line are recorded
	r.wantHolder(key("5"), 0)

	for i := range runs {
		a := key(strconv.Itoa(i))
		if r.holder(a) == 0 {
			t.Fatalf("%d is still in line", i)
		}
		r.turn(a, waitingTurn(step("x")))
		r.settle()
		r.turn(a, waitingTurn()) // the code knows that the step is recorded
		r.settle()
		if len(r.held) > 3 {
			t.Fatalf("%d are held", len(r.held))
		}
	}

	r.wantEvents(key("5"), "signal_received s", "step_completed x")
	r.wantHolder(key("0"), 0)
	r.signal(key("0"), "s", "again")
	r.settle()
	r.wantHolder(key("0"), 1)

	for i := range runs { // the room of each run is free again when the run ends
		a := key(strconv.Itoa(i))
		if r.holder(a) == 0 {
			r.signal(a, "s", "wake "+a.Key)
			r.settle()
		}
		r.turn(a, model.Turn{Close: &model.Close{Status: model.Completed}})
		r.settle()
	}

	if used, line := r.l.Room(); used != 0 || line != 0 || len(r.held) != 0 {
		t.Errorf("%d bytes and %d runs in line are left", used, line)
	}
}

// A worker gets a run that is larger than all the room, but no other run at the same time.
func TestRoomForOneLargeRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxHeld = 1 })
	r.join(1)
	a, b := key("a"), key("b")
	r.startRun(a)
	r.startRun(b)
	r.wantHolder(a, 1)
	r.wantHolder(b, 0)
	r.turn(a, waitingTurn(step("x")))
	r.settle()
	r.wantHolder(b, 0)
	r.turn(a, waitingTurn())
	r.settle()
	r.wantHolder(a, 0)
	r.wantHolder(b, 1)
}

// A run that is answering a query keeps its worker. After the answer it makes room, even if nothing
// else happens.
func TestRoomAfterAQuery(t *testing.T) {
	t.Parallel()
	for _, given := range []string{"answered", "given up"} {
		r := newRig(t, func(c *lane.Config) { c.MaxHeld = 1 })
		r.join(1)
		a, b := key("a"), key("b")
		run := r.startRun(a)
		r.send(model.Message{Kind: model.MessageQuery, To: a, Name: "q"}, "query")
		r.settle()
		r.turn(a, waitingTurn())
		r.settle()
		r.startRun(b)
		r.wantHolder(a, 1)
		r.wantHolder(b, 0)

		if h := r.held[run]; given == "answered" {
			r.l.AnswerQuery(r.now, h.worker, lane.QueryAnswer{Run: run, Generation: h.gen, ID: h.asked[0].ID, Output: model.Payload{}})
		} else {
			r.l.Forget(a, "query")
		}

		r.settle()
		r.wantHolder(a, 0)
		r.wantHolder(b, 1)
	}
}

// The lane reports once that a history comes near its limit, and says so among the reasons.
func TestLargeHistoriesAreTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.Limits.Bytes = 10_000 })
	r.join(1)
	a := key("a")
	run := r.startRun(a)

	for i := range 10 {
		r.turn(a, waitingTurn(model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStepCompleted, ID: strconv.Itoa(i), Output: data(900)}}))
		r.settle()
	}

	if len(r.large) != 1 || r.large[0].Run != run || r.large[0].Bytes < 8_000 {
		t.Errorf("told %v", r.large)
	}
	why, _ := r.l.Explain(a)
	if len(why) != 2 || why[1].Code != model.WaitLarge {
		t.Errorf("explained as %v", why)
	}
	r.release(a, "s")
	r.settle()
	if waits := r.row(run).Waits; len(waits) != 2 || waits[1].Code != model.WaitLarge {
		t.Errorf("stored as %v", waits)
	}
	r.signal(a, "s", "signal")
	r.settle()
	r.turn(a, waitingTurn(model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventStepCompleted, ID: "last", Output: data(5000)}}))
	r.settle()
	if why, _ := r.l.Explain(a); len(why) == 0 || why[0].Code != model.WaitLimit || len(r.large) != 1 {
		t.Errorf("explained as %v, told %v", why, r.large)
	}
}

// The calls of all entities that wait in memory are bounded. Callers that give up make room.
func TestCallsInMemoryAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxBytes = 50_000 })
	large := func(m *model.Message) { m.Input = data(20_000) }
	for i := range 3 {
		r.operation(ledger(strconv.Itoa(i)), "add", "", i, large)
		r.settle()
	}

	r.wantSilence(0, 1)
	r.wantAnswer(2, "exhausted")
	r.forget(ledger("0"), 0)
	r.operation(ledger("2"), "add", "", "again", large)
	r.settle()
	r.wantSilence(1, "again")
	r.joinEntities(1)
	r.work()
	r.wantAnswer(1, "")
	r.wantAnswer("again", "")
	if n := r.l.Calls(); n != 0 {
		t.Errorf("%d bytes wait without a receiver", n)
	}
}

// Waiting calls of one entity take no room from other entities: neither stored calls, however many,
// nor calls in memory, which may take a quarter of the room.
func TestNeighboursOfAFullEntityGoOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxBytes = 50_000 })
	large := func(m *model.Message) { m.Input = data(10_000) }
	r.join(1)
	r.joinEntities(1)

	for run, of := range map[string]string{"holder": "stored", "owner": "busy", "friend": "neighbour"} {
		r.startRun(key(run))
		r.lock(run, ledger(of))
	}

	for i := range 8 { // each of them is stored
		r.operation(ledger("stored"), "add", "", i, large, oneWay)
		r.settle()
		r.wantAnswer(i, "")
	}

	if n := r.l.Calls(); n != 0 {
		t.Errorf("calls of %d bytes that are stored take room from others", n)
	}

	for i := range 4 {
		r.operation(ledger("busy"), "add", "", 100+i, large)
		r.settle()
	}

	r.wantSilence(100)
	for i := 1; i < 4; i++ {
		r.wantAnswer(100+i, "exhausted")
	}
	r.operation(ledger("neighbour"), "add", "", "neighbour", large)
	r.settle()
	r.wantSilence("neighbour")
	r.forget(ledger("busy"), 100)
	r.forget(ledger("neighbour"), "neighbour")
	if n := r.l.Calls(); n != 0 {
		t.Errorf("%d bytes wait without a receiver", n)
	}
}
