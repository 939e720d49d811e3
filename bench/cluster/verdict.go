package main

import (
	"fmt"
	"math"
	"slices"

	perdurebench "github.com/perdure/perdure/internal/bench"
)

// verdict collects the figures that have a bar.
type verdict struct {
	bars []figure
}

// figure is a bar and what was measured for it, once or several times.
type figure struct {
	bar    perdurebench.Bar
	values []float64
	sum    bool // the sum of the values counts, not their median
}

// atLeast adds a figure whose median must be at least want.
func (v *verdict) atLeast(name string, want float64, unit string, got float64) {
	v.add(figure{bar: perdurebench.Bar{Name: name, AtLeast: true, Want: want, Unit: unit}}, got)
}

// atMost adds a figure whose median must be at most want.
func (v *verdict) atMost(name string, want float64, unit string, got float64) {
	v.add(figure{bar: perdurebench.Bar{Name: name, Want: want, Unit: unit}}, got)
}

// never adds a count of events that must not happen, in any round.
func (v *verdict) never(name string, got int) {
	v.add(figure{bar: perdurebench.Bar{Name: name}, sum: true}, float64(got))
}

// add adds a value to the figure with the same name.
func (v *verdict) add(f figure, got float64) {
	i := slices.IndexFunc(v.bars, func(o figure) bool { return o.bar.Name == f.bar.Name })
	if i < 0 {
		i = len(v.bars)
		v.bars = append(v.bars, f)
	}
	v.bars[i].values = append(v.bars[i].values, got)
}

// judge returns the bar with its final figure. A figure that is not a number was not measured, so
// the bar is not met.
func (f *figure) judge() perdurebench.Bar {
	b := f.bar
	b.Kind, b.Measured = perdurebench.Postgres, !slices.ContainsFunc(f.values, math.IsNaN)
	if f.sum {
		for _, v := range f.values {
			b.Got += v
		}
		return b
	}
	b.Got = median(f.values)
	return b
}

// print prints every bar. With gate set, it returns an error if a bar is not met.
func (v *verdict) print(gate bool) error {
	fmt.Println("\nbars")
	failed := 0
	for i := range v.bars {
		b, word := v.bars[i].judge(), "pass"
		if !b.IsMet() {
			failed++
			word = "FAIL"
		}
		fmt.Printf("%s  %s\n", word, b)
	}

	if gate && failed > 0 {
		return fmt.Errorf("%d of %d bars are not met", failed, len(v.bars))
	}
	return nil
}

// median returns the median of some values.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
