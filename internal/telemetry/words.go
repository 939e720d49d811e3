package telemetry

import (
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// FailureWord returns the kind of a failure as a word from a fixed list, for labels and spans. It
// never contains text of user code.
func FailureWord(f *model.Failure) string {
	if f == nil {
		return ""
	}

	switch f.Type {
	case model.FailureLost, model.FailurePoison, model.FailureSpent, model.FailureHistory:
		return f.Type
	}

	switch f.Kind {
	case model.FailurePanic, model.FailureTerminated, model.FailureReset:
		return f.Kind
	}

	switch {
	case fault.ParseKind(f.Kind) != fault.Unclassified:
		return f.Kind
	case f.Permanent:
		return "permanent"
	}

	return "error"
}
