package kernel

import (
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Epoch is the store time at which every simulation starts, in µs.
const Epoch = 1_700_000_000_000_000

// Units of virtual time, in µs.
const (
	Millisecond = int64(1000)
	Second      = 1000 * Millisecond
)

// Violation is the error of a simulation in which an invariant does not hold.
type Violation struct{ text string }

func (v Violation) Error() string { return v.text }

// Kernel is the virtual time of one simulation: its events, its threads, its random numbers and its
// trace.
type Kernel struct {
	Tracing bool   // collects a readable trace
	state   uint64 // the state of the random numbers
	Now     int64  // virtual time in µs
	queue   eventHeap
	seq     uint64
	Steps   int

	threads map[*thread]bool // threads with work
	resting []*thread        // threads without work
	Running *thread

	hash  uint64
	trace strings.Builder
}

// New returns a kernel at time 0, whose random numbers come from the seed.
func New(seed uint64, tracing bool) *Kernel {
	k := &Kernel{Tracing: tracing, state: seed*0x9e3779b97f4a7c15 + 0x1234567, hash: 14695981039346656037, threads: map[*thread]bool{}}
	for range 4 {
		k.Random()
	}
	return k
}

// event is a function that the kernel calls at a certain time. If proc is set, the kernel drops the
// event when that process is dead, and defers it while that process is paused.
type event struct {
	at   int64
	seq  uint64
	proc *Process
	do   func()
}

// Random returns the next number of a splitmix64 generator.
func (s *Kernel) Random() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Pick draws a number below n.
func (s *Kernel) Pick(n int) int { return int(s.Random() % uint64(n)) }

// Between draws a number from lo to hi, both included.
func (s *Kernel) Between(lo, hi int64) int64 { return lo + int64(s.Random()%uint64(hi-lo+1)) }

// Chance returns true with the given probability.
func (s *Kernel) Chance(p float64) bool { return float64(s.Random()>>11)/(1<<53) < p }

// OneOf picks one of some values.
func OneOf[T any](s picker, values ...T) T { return values[s.Pick(len(values))] }

// picker draws numbers.
type picker interface{ Pick(n int) int }

// At schedules an event at a time, for a process if p is not nil.
func (s *Kernel) At(t int64, p *Process, do func()) {
	s.seq++
	s.queue.push(event{max(t, s.Now), s.seq, p, do})
}

// After schedules an event after a delay.
func (s *Kernel) After(d int64, p *Process, do func()) { s.At(s.Now+d, p, do) }

const maxSteps = 400_000

// RunUntil runs events until the time is reached or done returns true.
func (s *Kernel) RunUntil(limit int64, done func() bool) {
	for len(s.queue) > 0 && s.queue[0].at <= limit && (done == nil || !done()) {
		e := s.queue.pop()
		s.Now = e.at
		if s.Steps++; s.Steps > maxSteps {
			s.Fail("more than %d events: something runs in circles", maxSteps)
		}
		if p := e.proc; p != nil {
			if p.Dead {
				continue
			}
			if p.Paused {
				p.deferred = append(p.deferred, e)
				continue
			}
		}
		e.do()
	}

	if len(s.queue) == 0 || s.queue[0].at > limit {
		s.Now = max(s.Now, limit)
	}
}

// Fail ends the simulation with a violation.
func (s *Kernel) Fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.Logf("VIOLATION %s", text)
	panic(Violation{fmt.Sprintf("at %s: %s", s.Clock(), text)})
}

// Clock returns the virtual time as a text, for errors.
func (s *Kernel) Clock() string { return time.Duration(s.Now * 1000).String() }

// Logf adds a line to the readable trace.
func (s *Kernel) Logf(format string, args ...any) {
	if s.Tracing {
		fmt.Fprintf(&s.trace, "%10.6f ", float64(s.Now)/1e6)
		fmt.Fprintf(&s.trace, format, args...)
		s.trace.WriteByte('\n')
	}
}

// Mix adds values to the hash of the trace.
func (s *Kernel) Mix(vs ...uint64) {
	h := s.hash
	h = (h ^ uint64(s.Now)) * 1099511628211
	for _, v := range vs {
		h = (h ^ v) * 1099511628211
		h ^= h >> 29
	}
	s.hash = h
}

// MixText adds a text to the hash of the trace.
func (s *Kernel) MixText(t string) {
	h := s.hash
	for i := range len(t) {
		h = (h ^ uint64(t[i])) * 1099511628211
	}
	s.hash = h
}

// MixRun adds the id of a run to the hash of the trace.
func (s *Kernel) MixRun(id model.RunID) {
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

// Each node of the heap has four children, so the heap is shallow. A push is cheap, because most
// pushed events stay near the end of the heap.

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

// Outcome returns the readable trace, and the hash of the trace.
func (s *Kernel) Outcome() (trace string, hash uint64) { return s.trace.String(), s.hash }

// Microseconds converts virtual time.
func Microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
