package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
)

// A breaker need not be created: an activity only names it. An operation on a misspelt name would
// change nothing. So the service refuses a name that has no state and no rule, and that no activity
// of a live worker names. A limit exists only if it has a rule. If the service refuses a name, the
// commands list the known names.

// maxNames is the largest number of known names that an error lists.
const maxNames = 20

// anyName is the help of the flag that skips the comparison.
const anyName = "accept a name that no running program, rule or state has, and set a rule for it"

// orKnown adds the known names to a not-found error.
func orKnown(err error, what string, known func() ([]string, error)) error {
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	names, failed := known()
	if failed != nil {
		return err // the error is right without the names
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

// breakerNames returns the known names. A name that ends in * means all names with this prefix.
func (o *options) breakerNames(ctx context.Context, b api.Backend) (names []string, err error) {
	states, err := b.Breakers(ctx, o.tenant)
	if err != nil {
		return nil, err
	}
	for i := range states {
		names = append(names, states[i].Name)
	}
	rules, err := b.BreakerRules(ctx, o.tenant)
	if err != nil {
		return nil, err
	}

	for i := range rules {
		names = append(names, rules[i].Name)
	}
	workers, err := b.ListWorkers(ctx, o.tenant)
	for i := range workers {
		names = append(names, workers[i].Breakers...)
	}

	return names, err
}

// newName makes a new name of a breaker known, if the user wants that. It sets a rule with the
// defaults for the name, because the service refuses names without a rule, a state or an activity.
func (o *options) newName(ctx context.Context, b api.Backend, name string, wanted bool) error {
	if !wanted {
		return nil
	}
	names, err := o.breakerNames(ctx, b)
	if err != nil || slices.Contains(names, name) {
		return err
	}
	return b.SetBreaker(ctx, o.tenant, api.Breaker{Name: name})
}

func (o *options) limitNames(ctx context.Context, b api.Backend) ([]string, error) {
	limits, err := b.Limits(ctx, o.tenant)
	names := make([]string, len(limits))
	for i := range limits {
		names[i] = limits[i].Rule.Name
	}
	return names, err
}

// warnOfLimit prints a warning if no activity names the limit. This is not an error, because the
// program that names the limit may be deployed later.
func (o *options) warnOfLimit(ctx context.Context, b api.Backend, name string) {
	workers, err := b.ListWorkers(ctx, o.tenant)
	if err != nil {
		return // the limit is set, even if the command could not read the workers
	}
	var named []string
	for i := range workers {
		named = append(named, workers[i].Limits...)
	}
	if !slices.Contains(named, name) {
		o.say(o.Err, fmt.Sprintf("No activity of a live worker names limit %s; %s.", name, knownText("names of limits in activities", named)))
	}
}
