package e2e_test

import (
	"errors"
	"testing"

	"github.com/perdure/perdure"
)

// A program cannot start a declared workflow under a name that no program can have. It can still
// read the executions of built-in workflows.
func TestNamesThatNoProgramCanHave(t *testing.T) {
	t.Parallel()
	caller := caller(t, newSite(t, "memory").open())
	for _, name := range []string{"a/b", "perdure.mine", "perdure.send", "task:mail", "entity:account", "service:rates"} {
		w := perdure.DeclareWorkflow[int, int](name)
		_, started := w.Start(caller, 1)
		_, ran := w.Run(caller, 1)
		many, err := w.StartMany(caller, []int{1})
		must(t, err)
		for _, err := range []error{started, ran, many[0].Err} {
			if !errors.Is(err, perdure.ErrInvalid) {
				t.Errorf("a start of %s: %v", name, err)
			}
		}
	}
	if _, err := perdure.DeclareWorkflow[int, int]("perdure.send").Execution(perdure.RawKey("k")).Poll(caller); !errors.Is(err, perdure.ErrNotFound) {
		t.Errorf("a read of a built-in workflow: %v", err)
	}
}
