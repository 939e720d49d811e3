package state

import (
	"testing"

	"github.com/perdure/perdure"
)

// Tests count and observe: state outside the journal is what they are for.
func TestRight(t *testing.T) {
	patience = 1
	runs := 0
	perdure.NewWorkflow("observed", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
		runs++
		hits.Add(1)
		return runs, nil
	})
}
