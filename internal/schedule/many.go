package schedule

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// Bounds of a command for many schedules.
const (
	// MaxMany is how many schedules one command may change.
	MaxMany = 1000
	// manyAtOnce is how many schedules AskMany asks at the same time, and manyTime is how long one
	// schedule may take to answer.
	manyAtOnce = 16
	manyTime   = 30 * time.Second
)

// Selection says which schedules a command is for: the schedules with the given names, the
// schedules that an app has applied, or all schedules of the tenant. Exactly one field is set.
type Selection struct {
	Names []string
	App   string
	All   bool
}

// Result is the result of a command for one schedule.
type Result struct {
	Name string
	Err  error // nil if the schedule has obeyed
}

// AskMany sends a command to many schedules, and returns one result for each schedule, sorted by
// name. If one schedule refuses the command, the others still obey it. If AskMany returns an error
// without results, no schedule has received the command. If ctx ends, AskMany returns the error of
// ctx and all results. Schedules that have not answered by then have an error in their result.
func (s Schedules) AskMany(ctx context.Context, sel Selection, c *Command) ([]Result, error) {
	if c.Verb != VerbPause && c.Verb != VerbResume {
		return nil, fault.New(fault.Invalid, "the verb is %.40q, must be %s or %s", c.Verb, VerbPause, VerbResume)
	}
	all, err := s.selected(ctx, sel)
	if err != nil {
		return nil, err
	}

	turns := make(chan *Result)
	var busy sync.WaitGroup
	for range min(manyAtOnce, len(all)) {
		busy.Go(func() {
			for r := range turns {
				within, cancel := context.WithTimeout(ctx, manyTime)
				_, r.Err = s.Ask(within, r.Name, c)
				cancel()
			}
		})
	}
	for i := range all {
		if all[i].Err == nil {
			turns <- &all[i]
		}
	}
	close(turns)
	busy.Wait()
	return all, ctx.Err()
}

// selected returns the schedules of a selection, sorted by name, each once. A schedule that cannot
// be read has an error in its result.
func (s Schedules) selected(ctx context.Context, sel Selection) ([]Result, error) {
	ways := 0
	for _, given := range []bool{len(sel.Names) > 0, sel.App != "", sel.All} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, fault.New(fault.Invalid, "select schedules by name, by app, or all of them: set exactly one of these")
	}

	names := slices.Compact(slices.Sorted(slices.Values(sel.Names)))
	var all []Result
	for _, name := range names {
		if err := CheckName(name); err != nil {
			return nil, err
		}
		all = append(all, Result{Name: name})
	}
	if len(names) == 0 {
		for seen, err := range s.List(ctx, sel.App) {
			if seen.Name == "" && err != nil { // the list itself cannot be read
				return nil, err
			}
			if all = append(all, Result{seen.Name, err}); len(all) > MaxMany {
				break
			}
		}
		slices.SortFunc(all, func(a, b Result) int { return strings.Compare(a.Name, b.Name) })
	}
	if len(all) > MaxMany {
		return nil, fault.New(fault.Exhausted, "more than %d schedules are selected: name some of them", MaxMany)
	}
	return all, nil
}
