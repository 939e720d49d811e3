package telemetry

import (
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// FailureWord is the kind of a failure as a word of a list, for labels and spans: never anything
// that user code has written.
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
