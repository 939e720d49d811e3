package cli

import (
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/fault"
)

// exit is an exit code, what it means, and the kinds of errors that have it. Exit codes are part of
// the contract with scripts; docs/cli.md has the same table.
type exit struct {
	code  int
	means string
	kinds []fault.Kind
}

// exits are all exit codes. Errors of other kinds have code 1.
var exits = []exit{
	{0, "done", nil},
	{1, "the code that was asked failed, or a fault of Perdure", nil},
	{2, "wrong usage", []fault.Kind{fault.Invalid}},
	{3, "not found", []fault.Kind{fault.NotFound}},
	{4, "conflict", []fault.Kind{fault.Conflict, fault.AlreadyExists}},
	{5, "the store cannot be reached", []fault.Kind{fault.Unavailable}},
	{6, "timeout", []fault.Kind{fault.Timeout}},
	{7, "not allowed", []fault.Kind{fault.Denied, fault.Unauthenticated}},
	{8, "a limit is reached", []fault.Kind{fault.Exhausted}},
	{9, "blocked or paused", []fault.Kind{fault.Blocked}},
	{10, "stored data is damaged", []fault.Kind{fault.Corrupt}},
	{130, "interrupted, or not confirmed", []fault.Kind{fault.Canceled}},
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	for _, e := range exits {
		if slices.Contains(e.kinds, fault.KindOf(err)) {
			return e.code
		}
	}
	return 1
}

// exitCodeList is all of them in a sentence.
func exitCodeList() string {
	all := make([]string, len(exits))
	for i, e := range exits {
		all[i] = strconv.Itoa(e.code) + " " + e.means
	}
	return strings.Join(all, ", ")
}
