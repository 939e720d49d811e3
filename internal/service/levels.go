package service

import (
	"cmp"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/engine/series"
)

// subject names a queue or a limit of the tenant.
type subject struct {
	kind series.SubjectKind
	name string
}

// levelSums are the states of queues and limits, combined over nodes.
type levelSums map[subject]*api.SeriesOf

// add adds the levels of a node. l is nil if the node is of an older version that has no levels.
func (s levelSums) add(to *api.Series, l *series.Levels) {
	if l == nil {
		to.Partial = true
		return
	}
	to.Cut = to.Cut || l.Cut
	points := int64(api.SeriesSpan / to.Step)
	newest := int64(to.From)/to.Step.Microseconds() + points - 1
	for i := range l.Subjects {
		o := &l.Subjects[i]
		if o.Kind > series.Limit || len(o.Points) != series.NumLevels {
			continue // a level of a newer version
		}
		sum := s.at(subject{o.Kind, o.Name}, points)
		for level, values := range o.Points {
			combineLevel(sum.Lines[level].Points, values, levelPlace{kind: o.Kind, level: level, ahead: l.Last - newest})
		}
	}
}

// at returns the entry of a subject, and creates it if necessary.
func (s levelSums) at(of subject, points int64) *api.SeriesOf {
	if sum := s[of]; sum != nil {
		return sum
	}
	sum := &api.SeriesOf{Name: of.name}
	for _, name := range of.kind.LevelNames() {
		sum.Lines = append(sum.Lines, api.SeriesLine{Name: name, Points: make([]int64, points)})
	}
	s[of] = sum
	return sum
}

// levelPlace says which level a list of numbers is about, and where the points of the list belong
// in the reply. A level is a number of a queue or a limit. The clocks of nodes differ a little. So
// the last point of the list is later than the last point of the reply by the number of points in
// ahead.
type levelPlace struct {
	kind  series.SubjectKind
	level int
	ahead int64
}

// combineLevel adds the numbers of a node.
func combineLevel(to []int64, values []uint32, p levelPlace) {
	put := func(at int, v int64) {
		switch {
		case at < 0 || at >= len(to):
		case p.kind.Largest(p.level):
			to[at] = max(to[at], v)
		default:
			to[at] += v
		}
	}

	last := len(to) - 1 + int(min(max(p.ahead, -int64(len(to))), int64(len(to))))
	for i, v := range values {
		put(last-(len(values)-1-i), int64(v))
	}
	// If a node is one point behind, use its last state for the last point of the reply as well.
	if p.ahead == -1 && !p.kind.Sums(p.level) && len(values) > 0 {
		put(last+1, int64(values[len(values)-1]))
	}
}

// finish adds the sums to the reply, ordered by name. If there are too many queues or limits, it
// adds only the busiest ones.
func (s levelSums) finish(to *api.Series) {
	for of, sum := range s {
		list := &to.Queues
		if of.kind == series.Limit {
			list = &to.Limits
		}
		*list = append(*list, *sum)
	}

	for _, list := range [...]*[]api.SeriesOf{&to.Queues, &to.Limits} {
		if len(*list) > api.MaxSeriesOf {
			slices.SortFunc(*list, func(a, b api.SeriesOf) int {
				return cmp.Or(cmp.Compare(busy(&b), busy(&a)), strings.Compare(a.Name, b.Name))
			})
			*list, to.Cut = (*list)[:api.MaxSeriesOf], true
		}
		slices.SortFunc(*list, func(a, b api.SeriesOf) int { return strings.Compare(a.Name, b.Name) })
	}
}

// busy sums up the first numbers of a subject: the tasks that wait in a queue, and the permits of a
// limit that are held.
func busy(of *api.SeriesOf) (n int64) {
	for _, v := range of.Lines[0].Points {
		n += v
	}
	return n
}
