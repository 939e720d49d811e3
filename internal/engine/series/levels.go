package series

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// SubjectKind is what a level belongs to.
type SubjectKind uint8

// Kinds of subjects.
const (
	Queue SubjectKind = iota
	Limit
)

// Subject is a queue or a limit of a tenant.
type Subject struct {
	Tenant string
	Kind   SubjectKind
	Name   string
}

// NumLevels is how many numbers a subject has.
const NumLevels = 4

// Levels of a queue. Oldest is how long the task that could have started first has waited, in
// seconds.
const (
	QueueWaiting = iota
	QueueDelayed
	QueueRunning
	QueueOldest
)

// Levels of a limit, over all its keys. Permits is the number of permits that the node may hand
// out. Refused counts how often the limit has held a task back since the last sample.
const (
	LimitHeld = iota
	LimitWaiting
	LimitPermits
	LimitRefused
)

var levelNames = [...][NumLevels]string{
	Queue: {"waiting", "delayed", "running", "oldest"},
	Limit: {"held", "waiting", "permits", "refused"},
}

// LevelNames returns the names of the numbers of a subject.
func (k SubjectKind) LevelNames() []string { return slices.Clone(levelNames[k][:]) }

// Sums reports whether a level counts events. Other levels show a state.
func (k SubjectKind) Sums(level int) bool { return k == Limit && level == LimitRefused }

// Largest says how to combine the levels of several nodes. If it returns true, the result is the
// largest of them. Otherwise it is their sum.
func (k SubjectKind) Largest(level int) bool { return k == Queue && level == QueueOldest }

// Bounds of levels.
const (
	// MaxSubjects bounds the memory: a subject has about 12 KB.
	MaxSubjects = 500
	// MaxOfTenant keeps one tenant from taking the place of all others.
	MaxOfTenant = 100
	// held is how many points a sample is used for if no later sample comes, because a sampler may
	// be late.
	held = 3
)

// Sample is the state of a subject at one moment.
type Sample struct {
	Subject
	Levels [NumLevels]uint32
}

// OfSubject has the levels of a subject.
type OfSubject struct {
	Kind SubjectKind `cbor:"1,keyasint"`
	Name string      `cbor:"2,keyasint"`
	// Points has the numbers of each level, the newest last.
	Points [][]uint32 `cbor:"3,keyasint"`
}

// Levels are the subjects of one tenant on one node.
type Levels struct {
	// Last is the number of the newest point: how many steps of the question's length have passed
	// since 1970.
	Last     int64       `cbor:"3,keyasint"`
	Subjects []OfSubject `cbor:"1,keyasint,omitempty"`
	// Cut says that the node has left out subjects within the hour, because it had no room.
	Cut bool `cbor:"2,keyasint,omitempty"`
}

// track has the samples of a subject. The point with the number n is at n % Points.
type track struct {
	last    int64 // the newest point
	sampled int64 // the point of the last sample
	active  int64 // the last point with a number that is not zero
	points  [NumLevels][Points]uint32
}

// Sampler keeps the levels of the last hour. All methods are safe for concurrent use.
type Sampler struct {
	mu     sync.Mutex
	tracks map[Subject]*track
	// cut has, by tenant, the last point at which the sampler left out a subject of that tenant.
	// cutAll is this point for all tenants for which the map has no room.
	cut    map[string]int64
	cutAll int64
}

// NewSampler returns a sampler without samples.
func NewSampler() *Sampler { return &Sampler{tracks: map[Subject]*track{}, cut: map[string]int64{}} }

// Add records the state of all subjects of a node. A subject that is missing has no tasks. Two
// samples of one point become one, with the state of the second and the sum of both counts.
func (s *Sampler) Add(now model.Time, all []Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := number(now)
	seen := make(map[Subject]bool, len(all))
	for i := range all {
		seen[all[i].Subject] = true
		s.record(at, &all[i])
	}

	for subject, t := range s.tracks {
		if !seen[subject] {
			t.set(at, subject.Kind, [NumLevels]uint32{})
		}
		if t.active <= at-Points {
			delete(s.tracks, subject) // nothing happened within the hour
		}
	}
	for tenant, last := range s.cut {
		if last <= at-Points {
			delete(s.cut, tenant)
		}
	}
}

// record records the state of one subject. A subject without tasks needs no track.
func (s *Sampler) record(at int64, one *Sample) {
	t := s.tracks[one.Subject]
	if t == nil {
		if one.Levels == ([NumLevels]uint32{}) {
			return
		}
		s.makeRoom(at, one.Tenant)
		t = &track{last: at - 1, sampled: at - 1, active: at}
		s.tracks[one.Subject] = t
	}
	t.set(at, one.Kind, one.Levels)
}

// set records levels for a point. If the time is before the last sample, set records them for the
// point of that sample.
func (t *track) set(at int64, kind SubjectKind, levels [NumLevels]uint32) {
	again := at <= t.sampled
	t.advance(at, kind)
	t.sampled = t.last
	for i, v := range levels {
		p := &t.points[i][t.last%Points]
		if again && kind.Sums(i) {
			v += *p
		}
		*p = v
		if v != 0 {
			t.active = t.last
		}
	}
}

// advance makes a point the newest one. The first few points without a sample repeat the last
// state. Further points are empty.
func (t *track) advance(to int64, kind SubjectKind) {
	for n := max(t.last+1, to-Points+1); n <= to; n++ {
		for i := range t.points {
			v := uint32(0)
			if n-t.sampled <= held && !kind.Sums(i) {
				v = t.points[i][t.sampled%Points]
			}
			t.points[i][n%Points] = v
		}
	}
	t.last = max(t.last, to)
}

// makeRoom drops the subject that has been idle for longest, if there is no room for another
// subject of the tenant. If the tenant has too many subjects, makeRoom drops one of this tenant. If
// only the node has too many, it drops one of any tenant.
func (s *Sampler) makeRoom(at int64, tenant string) {
	own := 0
	for subject := range s.tracks {
		if subject.Tenant == tenant {
			own++
		}
	}
	if len(s.tracks) < MaxSubjects && own < MaxOfTenant {
		return
	}

	var oldest Subject
	found := (*track)(nil)
	for subject, t := range s.tracks {
		if own >= MaxOfTenant && subject.Tenant != tenant {
			continue
		}
		if found == nil || cmp.Or(cmp.Compare(t.active, found.active), strings.Compare(subject.Name, oldest.Name)) < 0 {
			found, oldest = t, subject
		}
	}
	delete(s.tracks, oldest)
	if len(s.cut) < MaxSubjects {
		s.cut[oldest.Tenant] = at
	} else {
		s.cutAll = at
	}
}

// Read returns the last hour of a tenant. Each point covers a time of step, which is a multiple of
// Step. The state of a point is that of the last sample in it.
func (s *Sampler) Read(now model.Time, tenant string, step time.Duration) *Levels {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, of := number(now), int64(step/Step)
	last := max(s.cut[tenant], s.cutAll)
	out := &Levels{Last: at / of, Cut: last > at-Points}
	for subject, t := range s.tracks {
		if subject.Tenant != tenant {
			continue
		}
		t.advance(at, subject.Kind)
		o := OfSubject{Kind: subject.Kind, Name: subject.Name}
		for i := range t.points {
			o.Points = append(o.Points, condense(&t.points[i], at, of, subject.Kind.Sums(i)))
		}
		out.Subjects = append(out.Subjects, o)
	}
	slices.SortFunc(out.Subjects, func(a, b OfSubject) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return out
}

// condense combines several samples into each point of a level. The last point contains the sample
// with the number at.
func condense(samples *[Points]uint32, at, of int64, sums bool) []uint32 {
	n := Points / of
	out := make([]uint32, n)
	first := at/of - n + 1
	for i := max(first*of, at-Points+1); i <= at; i++ {
		v, p := samples[i%Points], &out[i/of-first]
		if sums {
			*p += v
		} else {
			*p = v
		}
	}
	return out
}
