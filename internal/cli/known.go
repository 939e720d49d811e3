package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Limits and breakers come into being when they are named, so a misspelt name would stop nothing
// and say nothing. Commands compare a name with those that are known: with those that have a state
// or a rule, and with those that the activities of live workers name.

// maxNames is how many known names a complaint lists.
const maxNames = 20

// anyName is the help of the flag that leaves the comparison out.
const anyName = "also when no program that runs, no rule and no state has the name"

// orKnown adds the known names to the complaint that there is no such thing.
func orKnown(err error, what string, known func() ([]string, error)) error {
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	names, failed := known()
	if failed != nil {
		return err // the complaint is true without them
	}
	return fault.WithHint(err, "%s", knownText(what, names))
}

func knownText(what string, names []string) string {
	if len(names) == 0 {
		return "there are no " + what + " yet"
	}
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if len(names) > maxNames {
		names, more = names[:maxNames], ", …"
	}
	return "known " + what + ": " + strings.Join(names, ", ") + more
}

// breakerNames are the names, and the beginnings of names with * behind them, that are known.
func breakerNames(ctx context.Context, b api.Backend) (names []string, err error) {
	states, err := b.Breakers(ctx, model.DefaultTenant)
	if err != nil {
		return nil, err
	}
	for i := range states {
		names = append(names, states[i].Name)
	}
	rules, err := b.BreakerRules(ctx, model.DefaultTenant)
	if err != nil {
		return nil, err
	}

	for i := range rules {
		names = append(names, rules[i].Name)
	}
	workers, err := b.ListWorkers(ctx, model.DefaultTenant)
	for i := range workers {
		names = append(names, workers[i].Breakers...)
	}

	return names, err
}

// checkBreaker refuses the name of a breaker that nothing has.
func checkBreaker(ctx context.Context, b api.Backend, name string, anything bool) error {
	if anything {
		return nil
	}
	names, err := breakerNames(ctx, b)
	if err != nil {
		return err
	}
	for _, known := range names {
		if begin, open := strings.CutSuffix(known, "*"); known == name || open && strings.HasPrefix(name, begin) {
			return nil
		}
	}
	return fault.WithHint(fault.New(fault.NotFound, "there is no breaker %s", name), "%s; --any-name takes a name that nothing has yet", knownText("breakers", names))
}

func limitNames(ctx context.Context, b api.Backend) ([]string, error) {
	limits, err := b.Limits(ctx, model.DefaultTenant)
	names := make([]string, len(limits))
	for i := range limits {
		names[i] = limits[i].Rule.Name
	}
	return names, err
}

// warnOfLimit tells that no activity names the limit that was set. It is no mistake: the program
// that does may be deployed later.
func (o *options) warnOfLimit(ctx context.Context, b api.Backend, name string) {
	workers, err := b.ListWorkers(ctx, model.DefaultTenant)
	if err != nil {
		return // the limit is set, whether or not the workers are known
	}
	var named []string
	for i := range workers {
		named = append(named, workers[i].Limits...)
	}
	if !slices.Contains(named, name) {
		o.say(o.Err, fmt.Sprintf("No activity of a live worker names limit %s; %s.", name, knownText("names of limits in activities", named)))
	}
}
