package cli

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/node"
)

// exit is an exit code, its meaning, and the kinds of errors that have it. Exit codes are part of
// the contract with scripts. The table in docs/cli.md has the same texts.
type exit struct {
	code  int
	means string
	kinds []fault.Kind
}

// exitRefused is the exit code of a refusal. It is EX_CONFIG of sysexits.h, which service managers
// know.
const exitRefused = 78

// refusal is the reason why a server refuses to start. Another start fails in the same way until an
// operator has changed a setting, the machine or the store.
type refusal struct{ error }

// Unwrap returns the reason.
func (r refusal) Unwrap() error { return r.error }

// exitPassing is the exit code of a server that could not start now, but may start later.
const exitPassing = 5

// passing is a reason why a server could not start that may go away by itself.
type passing struct{ error }

// Unwrap returns the reason.
func (p passing) Unwrap() error { return p.error }

// refuseStart returns the error of a server that does not start. The error has the type passing if
// the reason may go away by itself: a store that does not answer in time or has no room, or an
// address that is taken. For an interrupt, and for a failure of Perdure itself, refuseStart returns
// err unchanged. All other errors get the type refusal.
func refuseStart(err error) error {
	if err == nil {
		return nil
	}
	if node.StoreReadOnly(err) {
		return refusal{err}
	}
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Timeout, fault.Exhausted:
		return passing{err}
	case fault.Canceled, fault.Internal:
		return err
	default:
		return refusal{err}
	}
}

// exits are all exit codes. Errors of any other kind have code 1.
var exits = []exit{
	{0, "done", nil},
	{1, "your code returned an error, or an internal error of Perdure", nil},
	{2, "wrong usage", []fault.Kind{fault.Invalid}},
	{3, "not found", []fault.Kind{fault.NotFound}},
	{4, "conflict", []fault.Kind{fault.Conflict, fault.AlreadyExists}},
	{exitPassing, "the store cannot be reached, or the server cannot start now", []fault.Kind{fault.Unavailable}},
	{6, "timeout", []fault.Kind{fault.Timeout}},
	{7, "not allowed", []fault.Kind{fault.Denied, fault.Unauthenticated}},
	{8, "a limit is reached", []fault.Kind{fault.Exhausted}},
	{9, "blocked or paused", []fault.Kind{fault.Blocked}},
	{10, "stored data is damaged", []fault.Kind{fault.Corrupt}},
	{exitRefused, "the server refuses to start", nil},
	{130, "interrupted, or not confirmed", []fault.Kind{fault.Canceled}},
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[refusal](err); ok {
		return exitRefused
	}
	if _, ok := errors.AsType[passing](err); ok {
		return exitPassing
	}
	for _, e := range exits {
		if slices.Contains(e.kinds, fault.KindOf(err)) {
			return e.code
		}
	}
	return 1
}

// exitCodeList returns all exit codes as one sentence.
func exitCodeList() string {
	all := make([]string, len(exits))
	for i, e := range exits {
		all[i] = strconv.Itoa(e.code) + " " + e.means
	}
	return strings.Join(all, ", ")
}
