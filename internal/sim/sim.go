package sim

import (
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
)

// epoch is the store time at which every simulation starts, in µs.
const epoch = 1_700_000_000_000_000

const (
	millisecond = int64(1000)
	second      = 1000 * millisecond
)

// Options configure one simulation. The zero value has all faults and no trace.
type Options struct {
	// Trace collects a readable trace, which makes the simulation slower.
	Trace bool
	// Calm leaves out all faults.
	Calm bool
	// Plain leaves out the faults that last (hardship). Older known seeds need it, because they
	// were found before these faults existed.
	Plain bool
}

// Result is the outcome of a simulation.
type Result struct {
	Hash  uint64
	Stats Stats
	// Trace is the readable trace. It is empty unless Options.Trace is set.
	Trace string
}

// Run simulates one seed. The error says which promise was broken.
func Run(seed uint64, o Options) (r Result, err error) {
	s := newSim(seed, o)
	defer s.abandon()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case violation:
			err = p
		default:
			err = fmt.Errorf("panic at %s: %v\n%s", s.clock(), p, debug.Stack())
		}
		r = Result{Hash: s.hash, Stats: s.stats, Trace: s.trace.String()}
	}()
	s.run()
	return r, nil
}

// violation is a broken promise.
type violation struct{ text string }

func (v violation) Error() string { return v.text }

// Sim is one simulation.
type Sim struct {
	opts  Options
	plan  plan
	state uint64 // of the random numbers
	now   int64  // virtual time in µs
	queue eventHeap
	seq   uint64
	steps int

	threads map[*thread]bool // with work
	resting []*thread        // without work
	running *thread

	readings []*reading // not in use

	hash  uint64
	trace strings.Builder
	stats Stats

	disk     *disk
	ledger   *ledger
	procs    [3]*proc // by slot; nil while down
	pids     int
	programs []*program
	users    []*user
	helper   *user // sends runs what they wait for, after the faults have ended
	ops      []*op
	healed   bool
	leaving  bool            // all nodes shut down
	labels   bool            // executions have labels
	copies   []model.Address // where forks and imports went
	ids      uint64

	entities bool // there are accounts and desks
	stamps   uint64
	deeds    uint64

	hardship hardship
	shift    int64   // how far the clock of the store has jumped
	lasting  int64   // the largest part of it that has lasted
	jumping  int64   // when it jumps back
	jumped   []int64 // when it jumped
	stepped  int64   // when it last jumped permanently
	slewed   bool    // it jumped by so little that nodes follow
	// the longest duration of the call that gave a node its first time of the store
	tripped   int64
	upgraded  bool                   // processes that start now are of the newer build
	damaged   map[model.RunID]bool   // requests, and whether their rows are damaged
	newEvents map[model.Address]bool // addresses with events that the old build cannot read
	heaviest  int                    // bytes of the largest request of a user

	// the seed has retention; with tasks it also has orders for dead tasks, limits, breakers and
	// pauses
	young   bool
	letters bool // there are orders for dead tasks
	gates   bool // there are limits, breakers and paused queues
	shared  bool // and all nodes share them
	// the last operation that removes permanent obstacles
	opening *op
	tasks   bool                    // there are tasks
	lends   bool                    // nodes lend each other slots of their workers
	nodeIDs map[string]model.NodeID // of all nodes that ever existed, by name
	errands [len(taskKeys)]errand
	hands   map[string]*hand // all that ever existed, by name
	claims  map[model.ClaimRef]*claimed
	reports map[model.ClaimRef][]*model.TaskReport
	beats   map[model.ClaimRef]beat
	dropped map[model.ClaimRef]bool // given back because no worker has it

	sets     []*rule.Set               // rule sets that nodes have used
	began    map[rule.Resource][]int64 // start times of tasks that need a token
	breakers map[rule.BreakerID]*sharedBreaker
	places   map[string][]limit.Place // nodes that have something on a page, as stored
	behind   int64                    // the most that the clock of a node was behind the store's
}

// event is something that happens at a time. It happens to a process if proc is set.
type event struct {
	at   int64
	seq  uint64
	proc *proc
	do   func()
}

func newSim(seed uint64, o Options) *Sim {
	// One seed in eight has labels. One in three has tasks. One in three is young: it has the
	// features that were added later, and half of the young ones have tasks. About one in four has
	// entities. The other seeds do not change, so that they still cover what they have found.
	s := &Sim{opts: o, state: seed*0x9e3779b97f4a7c15 + 0x1234567, hash: 14695981039346656037, labels: seed%8 == 3, threads: map[*thread]bool{}, damaged: map[model.RunID]bool{}, newEvents: map[model.Address]bool{}, tasks: seed%3 == 1 || seed%6 == 5, young: seed%3 == 2}
	s.shared = s.young && s.tasks && seed%24 != 23
	s.entities = seed%6 == 0 || seed%7 == 1
	for range 4 {
		s.random()
	}
	s.drawPlan()
	if s.entities {
		s.drawEntities()
	}

	if s.tasks {
		s.hands, s.claims = map[string]*hand{}, map[model.ClaimRef]*claimed{}
		s.reports, s.beats, s.dropped = map[model.ClaimRef][]*model.TaskReport{}, map[model.ClaimRef]beat{}, map[model.ClaimRef]bool{}
		s.lends, s.nodeIDs = seed%6 == 4 && !o.Plain, map[string]model.NodeID{}
		s.letters, s.gates = s.young && s.chance(0.8), s.young && s.chance(0.7) || s.shared
		s.began, s.breakers, s.places = map[rule.Resource][]int64{}, map[rule.BreakerID]*sharedBreaker{}, map[string][]limit.Place{}
		for i := range s.errands {
			s.errands[i] = s.drawErrand()
		}
	}

	s.ledger = newLedger(s)
	s.disk = newDisk(s)
	if s.gates {
		s.drawSettings()
	}
	s.drawPrograms()
	s.drawHardships(seed)

	return s
}

// random returns the next number of a splitmix64 generator.
func (s *Sim) random() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// pick draws a number below n.
func (s *Sim) pick(n int) int { return int(s.random() % uint64(n)) }

// between draws a number from lo to hi, both included.
func (s *Sim) between(lo, hi int64) int64 { return lo + int64(s.random()%uint64(hi-lo+1)) }

// chance returns true with the given probability.
func (s *Sim) chance(p float64) bool { return float64(s.random()>>11)/(1<<53) < p }

// oneOf picks one of some values.
func oneOf[T any](s *Sim, values ...T) T { return values[s.pick(len(values))] }

// newRun draws an id that sorts by the time at which it was drawn, as a UUIDv7 does.
func (s *Sim) newRun() model.RunID { return s.newRunAt(epoch + model.Time(s.now)) }

func (s *Sim) newRunAt(t model.Time) (id model.RunID) {
	s.ids++
	ms := uint64(t) / 1000
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	for i := range 8 {
		id[8+i] = byte(s.ids >> (8 * (7 - i)))
	}
	return id
}

// storeTime returns the time of the store's clock.
func (s *Sim) storeTime() model.Time { return model.Time(epoch + s.now + s.shift) }

// at schedules an event at a time, for a process if p is not nil.
func (s *Sim) at(t int64, p *proc, do func()) {
	s.seq++
	s.queue.push(event{max(t, s.now), s.seq, p, do})
}

// after schedules an event after a delay.
func (s *Sim) after(d int64, p *proc, do func()) { s.at(s.now+d, p, do) }

const maxSteps = 400_000

// runUntil runs events until the time is reached or done returns true.
func (s *Sim) runUntil(limit int64, done func() bool) {
	for len(s.queue) > 0 && s.queue[0].at <= limit && (done == nil || !done()) {
		e := s.queue.pop()
		s.now = e.at
		if s.steps++; s.steps > maxSteps {
			s.fail("more than %d events: something runs in circles", maxSteps)
		}
		if p := e.proc; p != nil {
			if p.dead {
				continue
			}
			if p.paused {
				p.deferred = append(p.deferred, e)
				continue
			}
		}
		e.do()
	}

	if len(s.queue) == 0 || s.queue[0].at > limit {
		s.now = max(s.now, limit)
	}
}

// run runs the whole simulation.
func (s *Sim) run() {
	s.logf("plan %+v", s.plan)
	for slot := range s.procs {
		s.after(s.between(0, s.plan.stagger), nil, func() { s.boot(slot) })
	}
	s.drawUsers()
	if !s.opts.Calm {
		s.scheduleChaos()
	}
	s.runUntil(s.plan.faultsUntil, nil)
	s.heal()
	s.neighboursEnd()
	deadline := s.now + s.plan.patience
	s.runUntil(deadline, s.finished)
	if !s.finished() {
		s.failStuck()
	}
	s.comeToRest()
	s.checkEnd()
	s.checkSilence()
	s.checkFlows()
	s.checkGone()
	s.checkForgotten()
	s.leaveAll()
}

// fail ends the simulation with a violation.
func (s *Sim) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.logf("VIOLATION %s", text)
	panic(violation{fmt.Sprintf("at %s: %s", s.clock(), text)})
}

func (s *Sim) clock() string { return time.Duration(s.now * 1000).String() }

// logf adds a line to the readable trace.
func (s *Sim) logf(format string, args ...any) {
	if s.opts.Trace {
		fmt.Fprintf(&s.trace, "%10.6f ", float64(s.now)/1e6)
		fmt.Fprintf(&s.trace, format, args...)
		s.trace.WriteByte('\n')
	}
}

// mix adds values to the hash of the trace.
func (s *Sim) mix(vs ...uint64) {
	h := s.hash
	h = (h ^ uint64(s.now)) * 1099511628211
	for _, v := range vs {
		h = (h ^ v) * 1099511628211
		h ^= h >> 29
	}
	s.hash = h
}

func (s *Sim) mixText(t string) {
	h := s.hash
	for i := range len(t) {
		h = (h ^ uint64(t[i])) * 1099511628211
	}
	s.hash = h
}

func (s *Sim) mixRun(id model.RunID) {
	h := s.hash
	for _, b := range id {
		h = (h ^ uint64(b)) * 1099511628211
	}
	s.hash = h
}

// eventHeap orders events by time. Events of the same time keep the order in which they were
// scheduled.
type eventHeap []event

func (h eventHeap) less(i, j int) bool {
	return h[i].at < h[j].at || (h[i].at == h[j].at && h[i].seq < h[j].seq)
}

// The heap has four children per node: it is shallow, and most events are pushed near its end.

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	q := *h
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 4
		if q[up].at < e.at || (q[up].at == e.at && q[up].seq < e.seq) {
			break
		}
		q[i] = q[up]
		i = up
	}
	q[i] = e
}

func (h *eventHeap) pop() event {
	q := *h
	top := q[0]
	n := len(q) - 1
	e := q[n]
	q[n] = event{}
	q = q[:n]
	*h = q
	if n == 0 {
		return top
	}

	i := 0
	for {
		least := 4*i + 1
		if least >= n {
			break
		}
		for c := least + 1; c < min(4*i+5, n); c++ {
			if q.less(c, least) {
				least = c
			}
		}
		if e.at < q[least].at || (e.at == q[least].at && e.seq < q[least].seq) {
			break
		}
		q[i] = q[least]
		i = least
	}

	q[i] = e
	return top
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
