package api

import (
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// CheckWorkflowName returns an error for the name of a workflow that no program can have: a name
// with a slash, or with a prefix that is reserved. People and programs may not start a workflow
// with such a name, but they may read and operate the built-in workflows of Perdure. The names of
// Flovyn workflows contain the name of a queue, which may have a slash.
func CheckWorkflowName(name string) error {
	if strings.HasPrefix(name, model.FlovynPrefix) {
		return nil
	}
	if strings.Contains(name, "/") {
		return fault.New(fault.Invalid, "the name of workflow %.200q contains a slash, which separates it from the key", name)
	}
	for _, prefix := range [...]string{model.ReservedPrefix, model.TaskPrefix, model.EntityPrefix, model.ServicePrefix} {
		if strings.HasPrefix(name, prefix) {
			return fault.New(fault.Invalid, "the name of workflow %.200q begins with %q, which is reserved for Perdure", name, prefix)
		}
	}
	return nil
}
