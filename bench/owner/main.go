// Command owner models a process with many cores that owns all executions, to find the largest load
// of its single loop. It runs the real state machine of a lane on one thread, in virtual time. The
// time of the loop is the processor time that the state machine really uses. The flags give the
// time of a commit, and the processor time of workers and clients on the other cores.
//
// The figures depend on the machine and on the engine. Other programs hardly affect them, because
// the command measures only the processor time of one thread.
package main

import (
	"container/heap"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

func main() {
	if err := measure(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "owner:", err)
		os.Exit(1)
	}
}

// settings describe the modelled process.
type settings struct {
	clients   int
	workflows int
	cores     int           // for workers and clients, in addition to the core of the loop
	turn      time.Duration // processor time of workers and clients for each input of the loop
	commit    time.Duration // how long a commit takes
	row       time.Duration // how much longer a commit takes for each row
	shell     time.Duration // processor time of the loop outside the state machine, for each input
}

// measure runs the command.
func measure(args []string) error {
	flags := flag.NewFlagSet("owner", flag.ExitOnError)
	s := settings{}
	clients := flags.String("clients", "64,1024,8192", "numbers of clients that wait for results")
	commits := flags.String("commits", "200us,1ms,5ms", "how long a commit takes")
	flags.IntVar(&s.workflows, "workflows", 100_000, "workflows of three steps for each line")
	cores := flags.Int("cores", 16, "cores of the process, one of them for the loop")
	flags.DurationVar(&s.turn, "turn", 15*time.Microsecond, "processor time of workers and clients for each input of the loop")
	flags.DurationVar(&s.row, "row", time.Microsecond, "how much longer a commit takes for each row")
	flags.DurationVar(&s.shell, "shell", time.Microsecond, "processor time of the loop for each input outside the state machine")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if s.cores = *cores - 1; s.cores < 1 {
		return fmt.Errorf("%d cores are too few: the loop has one for itself", *cores)
	}

	runtime.LockOSThread() // the thread's processor time is the processor time of the loop
	fmt.Println("| commit | clients | workflows/s | rows per commit | loop busy | other cores busy | a commit in flight | µs of the loop per workflow |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for text := range strings.SplitSeq(*commits, ",") {
		var err error
		if s.commit, err = time.ParseDuration(text); err != nil {
			return err
		}
		for text := range strings.SplitSeq(*clients, ",") {
			if s.clients, err = strconv.Atoi(text); err != nil || s.clients < 1 {
				return fmt.Errorf("%q is not a number of clients", text)
			}
			o, err := newOwner(s)
			if err != nil {
				return err
			}
			o.run()
			o.print()
		}
	}
	return nil
}

// shards is the number of shards of the modelled store.
const shards = 64

// owner is the modelled process.
type owner struct {
	settings
	lane *lane.Lane
	out  lane.Output

	now    time.Duration // virtual time of the loop
	coming arrivals
	inputs []func(model.Time) // inputs that have arrived and are not applied yet
	landed bool               // the commit has ended
	free   []time.Duration    // when each of the other cores is free
	ids    uint64
	order  int

	started, done           int
	rows, batches           int
	looping, others, flight time.Duration
}

// newOwner opens a lane that owns all shards of an empty store.
func newOwner(s settings) (*owner, error) {
	o := &owner{settings: s, free: make([]time.Duration, s.cores)}
	ctx := context.Background()
	st := memory.New(memory.Options{Shards: shards})
	node := model.NodeID{15: 1}
	reg, err := st.Register(ctx, store.NodeInfo{ID: node, Sole: true}, 1, time.Hour)
	if err != nil {
		return nil, err
	}
	ids := make([]model.ShardID, shards)
	for i := range ids {
		ids[i] = model.ShardID(i)
	}
	got, err := st.Acquire(ctx, node, reg.Epoch, ids)
	if err != nil {
		return nil, err
	}

	o.lane = lane.New(lane.Config{Ref: store.LaneRef{Node: node, Epoch: reg.Epoch}, Layout: model.NewLayout(shards, nil), NewRun: o.newRun})
	o.lane.Acquire(o.clock(), got)
	o.lane.Join(o.clock(), worker, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"three"}}, anyNumber{})
	for {
		o.lane.Flush(o.clock())
		o.out = o.lane.Take(o.out)
		if len(o.out.Loads) == 0 {
			return o, nil
		}
		for _, l := range o.out.Loads {
			o.lane.FinishLoad(o.clock(), l.ID, engine.Read(ctx, st, l, o.clock()))
		}
	}
}

// worker is the one worker of the process.
const worker lane.WorkerID = 1

// anyNumber lets the worker work on any number of runs.
type anyNumber struct{}

func (anyNumber) Take(int) bool { return true }
func (anyNumber) Keep()         {}
func (anyNumber) Free()         {}
func (anyNumber) Limit() int    { return 0 }

func (o *owner) newRun() (id model.RunID) {
	o.ids++
	binary.BigEndian.PutUint64(id[8:], o.ids)
	return id
}

// clock returns the virtual time as the lane sees it.
func (o *owner) clock() model.Time { return model.TimeOf(time.Unix(1_800_000_000, 0).Add(o.now)) }

// run runs the workflows.
func (o *owner) run() {
	for range o.clients {
		o.work(o.start())
	}
	for o.done < o.workflows {
		o.sleep()
		begun, applied := threadTime(), 0
		if o.landed {
			o.landed = false
			o.lane.FinishCommit(o.clock(), store.Committed{}, nil)
			applied++
		}
		// As in the engine, inputs wait outside the lane while the lane has no room.
		n := 0
		for ; n < len(o.inputs) && !o.lane.Full(); n++ {
			o.inputs[n](o.clock())
		}
		o.lane.Flush(o.clock())
		o.out = o.lane.Take(o.out)

		busy := threadTime() - begun + time.Duration(applied+n)*o.shell
		o.now += busy
		o.looping += busy
		o.inputs = slices.Delete(o.inputs, 0, n)
		o.carryOut()
	}
}

// sleep waits until there is something to do, and takes all inputs that have arrived.
func (o *owner) sleep() {
	if len(o.inputs) == 0 || o.lane.Full() {
		o.now = max(o.now, o.coming[0].at)
	}
	for len(o.coming) > 0 && o.coming[0].at <= o.now {
		if do := heap.Pop(&o.coming).(arrival).do; do != nil {
			o.inputs = append(o.inputs, do)
		} else {
			o.landed = true
		}
	}
}

// carryOut does what the lane asks for.
func (o *owner) carryOut() {
	if b := o.out.Commit; b != nil {
		took := o.commit + time.Duration(b.Rows())*o.row
		o.flight += took
		o.rows += b.Rows()
		o.batches++
		o.after(o.now+took, nil)
	}
	for i := range o.out.Calls {
		c := &o.out.Calls[i]
		switch c.Kind {
		case lane.CallActivate:
			o.work(o.turn3(c.Run, c.Generation, 0))
		case lane.CallDeliver:
			if seen := c.Events[len(c.Events)-1].Seq; seen < steps {
				o.work(o.turn3(c.Run, c.Generation, seen))
			}
		}
	}
	for range o.out.Answers {
		o.done++
		o.work(o.start())
	}
}

// steps is the number of steps of a workflow. The worker reports the last step and the end in one
// turn.
const steps = 3

// start returns the start of the next workflow, as a client sends it.
func (o *owner) start() func(model.Time) {
	o.started++
	key := strconv.Itoa(o.started)
	m := &model.Message{
		Kind: model.MessageStart, To: model.Address{Tenant: model.DefaultTenant, Type: "three", Key: key},
		Input: model.Payload{Data: []byte("7")}, RequestID: key, Drawn: true,
	}
	return func(now model.Time) { o.lane.Run(now, m, true, m) }
}

// turn3 returns the next turn of a workflow of three steps; seen is how many events its code has
// seen.
func (o *owner) turn3(run model.RunID, generation uint64, seen int64) func(model.Time) {
	name := "step" + strconv.FormatInt(seen+1, 10)
	t := &model.Turn{Run: run, Generation: generation, Seen: seen, Commands: []model.Command{{
		Kind: model.CommandRecord,
		Event: model.Event{
			Kind: model.EventStepCompleted, ID: "0/" + name, Name: name, Attempt: 1,
			Output: model.Payload{Data: []byte("7")}, Position: "three.go:42",
		},
	}}}
	if seen == steps-1 {
		t.Ahead, t.Close = 1, &model.Close{Status: model.Completed, Output: model.Payload{Data: []byte("7")}}
	}
	return func(now model.Time) { o.lane.Turn(now, worker, t) }
}

// work lets one of the other cores prepare an input for the loop.
func (o *owner) work(do func(model.Time)) {
	first := 0
	for i, at := range o.free {
		if at < o.free[first] {
			first = i
		}
	}
	end := max(o.free[first], o.now) + o.turn
	o.free[first] = end
	o.others += o.turn
	o.after(end, do)
}

// after hands an input to the loop at the given time.
func (o *owner) after(at time.Duration, do func(model.Time)) {
	o.order++
	heap.Push(&o.coming, arrival{at, o.order, do})
}

// print prints a line of the table.
func (o *owner) print() {
	share := func(d time.Duration, cores int) float64 { return 100 * d.Seconds() / o.now.Seconds() / float64(cores) }
	fmt.Printf("| %s | %d | %.0f | %.0f | %.0f %% | %.0f %% | %.0f %% | %.1f |\n",
		o.commit, o.clients, float64(o.done)/o.now.Seconds(), float64(o.rows)/float64(o.batches),
		share(o.looping, 1), share(o.others, o.cores), share(o.flight, 1), float64(o.looping.Nanoseconds())/1000/float64(o.done))
}

// arrival is an input on its way to the loop.
type arrival struct {
	at    time.Duration
	order int              // inputs of one moment keep their order
	do    func(model.Time) // nil for the end of the commit
}

// arrivals is a heap with the next arrival at the top.
type arrivals []arrival

func (a arrivals) Len() int { return len(a) }
func (a arrivals) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a arrivals) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *arrivals) Push(x any)   { *a = append(*a, x.(arrival)) }

// Pop removes the last element, as container/heap requires.
func (a *arrivals) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = arrival{}
	*a = (*a)[:last]
	return x
}

// threadTime returns the processor time of this thread.
func threadTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &u); err != nil {
		panic(err) // the system call fails only for wrong arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// rusageThread asks Linux for the calling thread.
const rusageThread = 1
