// Package series keeps the last hour of a node in memory: a [Recorder] counts what becomes durable
// in each tenant, and a [Sampler] keeps the state of queues and limits. Both have a bounded size.
// Their content is lost when the node ends.
package series

import (
	"sync"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Kind says what a number counts.
type Kind uint8

// Kinds.
const (
	Started Kind = iota // runs of workflows
	Completed
	Failed
	Canceled
	Terminated
	Continued
	Blocked
	TasksSubmitted
	TasksEnded   // attempts that have ended without a failure
	TaskFailures // attempts that have failed, or were lost
	TasksDead
	EntityCalls
	numKinds
)

var names = [numKinds]string{
	"started", "completed", "failed", "canceled", "terminated", "continued", "blocked", "tasks_submitted", "tasks_ended", "task_failures", "tasks_dead", "entity_calls",
}

// String returns the name of the kind.
func (k Kind) String() string { return names[k] }

// Kinds returns all kinds.
func Kinds() []Kind {
	all := make([]Kind, numKinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// Size of a ring.
const (
	Step   = 5 * time.Second
	Points = 720 // an hour
	// MaxTenants bounds the memory: a ring has about 35 KB.
	MaxTenants = 300
)

// Question asks for the last hour of a tenant.
type Question struct {
	Tenant string
	// Levels also asks for the state of queues and limits. Each point covers a time of Step, which
	// must be a multiple of the constant Step and must divide an hour.
	Levels bool
	Step   time.Duration
}

// Valid reports whether the step of the question is allowed.
func (q Question) Valid() bool {
	return !q.Levels || q.Step >= Step && q.Step <= Points*Step && q.Step%Step == 0 && Points*Step%q.Step == 0
}

// Counts are the numbers of one tenant on one node.
type Counts struct {
	// Since is when the node began to count.
	Since model.Time `cbor:"1,keyasint"`
	// Last is the number of the newest point: how many steps have passed since 1970.
	Last int64 `cbor:"2,keyasint"`
	// Points has the numbers of each kind, the newest last.
	Points [][]uint32 `cbor:"3,keyasint"`
	// Levels is nil if the question did not ask for them.
	Levels *Levels `cbor:"4,keyasint,omitempty"`
}

// hour has the last points of a tenant. The point with the number n is at n % Points.
type hour struct {
	since  model.Time
	last   int64
	points [numKinds][Points]uint32
}

// Recorder counts. All methods are safe for concurrent use.
type Recorder struct {
	mu sync.Mutex
	// since is when the recorder began, or when it last dropped a ring.
	since model.Time
	rings map[string]*hour
}

// New returns a recorder that counts from a time on.
func New(now model.Time) *Recorder { return &Recorder{since: now, rings: map[string]*hour{}} }

// One is one event to count.
type One struct {
	Tenant string
	Kind   Kind
}

// Add counts events at a time. If the time is before the newest point, Add counts them in the
// newest point.
func (r *Recorder) Add(now model.Time, all []One) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := number(now)
	for _, o := range all {
		g := r.rings[o.Tenant]
		if g == nil {
			r.makeRoom()
			g = &hour{since: r.since, last: at}
			r.rings[o.Tenant] = g
		}
		g.advance(at)
		g.points[o.Kind][g.last%Points]++
	}
}

// Read returns the last hour of a tenant.
func (r *Recorder) Read(now model.Time, tenant string) Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := Counts{Since: r.since, Last: number(now), Points: make([][]uint32, numKinds)}
	g := r.rings[tenant]
	if g != nil {
		g.advance(c.Last)
		c.Since, c.Last = g.since, g.last
	}

	for k := range c.Points {
		c.Points[k] = make([]uint32, Points)
		for i := range c.Points[k] {
			if g != nil {
				c.Points[k][i] = g.points[k][(g.last+1+int64(i))%Points]
			}
		}
	}
	return c
}

// number returns the number of the point of a time.
func number(t model.Time) int64 { return t.Std().UnixNano() / int64(Step) }

// advance makes a point the newest one. The points in between are empty.
func (g *hour) advance(to int64) {
	for n := max(g.last+1, to-Points+1); n <= to; n++ {
		for k := range g.points {
			g.points[k][n%Points] = 0
		}
	}
	g.last = max(g.last, to)
}

// makeRoom drops the tenant that was counted least recently, if there are too many. It also moves
// since forward, because the recorder no longer has complete numbers of all tenants for the time
// before.
func (r *Recorder) makeRoom() {
	if len(r.rings) < MaxTenants {
		return
	}
	oldest, name := (*hour)(nil), ""
	for tenant, g := range r.rings {
		if oldest == nil || g.last < oldest.last {
			oldest, name = g, tenant
		}
	}
	delete(r.rings, name)
	if end := model.TimeOf(time.Unix(0, (oldest.last+1)*int64(Step))); end > r.since {
		r.since = end
	}
}
