package e2e_test

import (
	"testing"
	"time"
)

// scenarios are tests of promises that hold on every store.
var scenarios = []struct {
	name string
	run  func(t *testing.T, s *site)
}{
	{"signals come once and in order", signalsInOrder},
	{"a signal wakes whenever it comes", signalsWheneverTheyCome},
	{"a wait for a signal ends with its scope", signalTimeout},
	{"signals with a start", signalWithStart},
	{"a promise is settled once", promises},
	{"children and their parents", children},
	{"children outlive their parents only if told", childPolicies},
	{"cancel lets clean-up run", cancelWithCleanup},
	{"compensations run in reverse", compensations},
	{"all, race, select, first", combinators},
	{"a chain of runs keeps key and signals", continueAsNew},
	{"a request id makes a repetition harmless", requestIDs},
	{"what happens to a used key", reusePolicies},
	{"looking at executions", looking},
	{"labels", labels},
	{"limits of labels", labelLimits},
	{"executions are selected by conditions", selections},
	{"batches", batches},
	{"two sleeps take the sum", twoSleeps},
	{"equal calls are two steps", equalCalls},
	{"attempts and their errors", attempts},
	{"now, random and ids do not change", sideEffects},
	{"a panic fails its execution only", panics},
	{"durable calls inside a step are refused", nestedCalls},
	{"a workflow that waits for nothing says so", waitsForNothing},
	{"updates are validated, done once and answered", updates},
	{"updates at the end of a run", updatesAtTheEnd},
	{"updates between workflows", updatesBetweenWorkflows},
	{"what a workflow sends is answered", sendsAreAnswered},
	{"queries see the code at rest", queries},
	{"state is read without a worker", states},
	{"terminate ends whatever the code says", terminate},
	{"pause keeps everything for later", pauses},
	{"an interrupt runs concurrently with the code", interrupts},
	{"all signals that are there", drains},
	{"a machine gets events in order", machines},
	{"a machine decides what a cancel request means", machineCancel},
	{"machines start functions start machines", machinesAndFunctions},
	{"a machine with thousands of activities", machineCrowd},
}

// Every scenario runs on every store.
func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, c := range scenarios {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onStores(t, kinds, c.run)
		})
	}
}

// Every scenario runs once more with executions that leave memory at every wait, so the engine
// replays each of them many times. TestLongScenariosUnloaded does the same in PostgreSQL, where it
// takes ten times as long.
func TestScenariosUnloaded(t *testing.T) {
	t.Parallel()
	runUnloaded(t, "memory", "sqlite")
}

func runUnloaded(t *testing.T, kinds ...string) {
	for _, c := range scenarios {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onStores(t, kinds, func(t *testing.T, s *site) {
				s.cfg.IdleAfter = time.Nanosecond
				c.run(t, s)
			})
		})
	}
}
