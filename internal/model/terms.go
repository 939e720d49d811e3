package model

import (
	"errors"
	"fmt"
	"time"
)

// Terms are the times that a client sets when it starts an execution: when its code begins, when it
// must have ended, and how a failed run is repeated. The stored start of a run keeps Timeout and
// Retry, because they also apply to every later run of the execution.
type Terms struct {
	// Delay and NotBefore postpone the start, by a duration or to a time. At most one of them is
	// set.
	Delay     time.Duration `cbor:"1,keyasint,omitempty"`
	NotBefore Time          `cbor:"2,keyasint,omitempty"`
	// Timeout limits the whole execution, over all of its runs; 0 for no limit. It counts from the
	// start of the code.
	Timeout time.Duration `cbor:"3,keyasint,omitempty"`
	// Retry says when another run with the same input follows a failed run. When it is nil, the
	// policy of the workflow applies.
	Retry *Retry `cbor:"4,keyasint,omitempty"`
}

// Kept returns the part of the terms that also applies to later runs; nil when there is none.
func (t *Terms) Kept() *Terms {
	if t == nil || t.Timeout == 0 && t.Retry == nil {
		return nil
	}
	return &Terms{Timeout: t.Timeout, Retry: t.Retry}
}

// Check returns everything that is wrong with the terms.
func (t *Terms) Check() error {
	var problems []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"start delay", t.Delay}, {"execution timeout", t.Timeout}} {
		if d.value < 0 || d.value > MaxTaskTime {
			problems = append(problems, fmt.Errorf("its %s is %s: it must be between 0 and 100 years", d.name, d.value))
		}
	}

	if t.NotBefore < 0 || t.NotBefore > MaxTime {
		problems = append(problems, fmt.Errorf("its start time is %d microseconds: it must be between 1970 and 9999", t.NotBefore))
	}
	if t.Delay != 0 && t.NotBefore != 0 {
		problems = append(problems, errors.New("it has a start delay and a start time: use only one of them"))
	}

	if t.Retry != nil {
		spec := TaskSpec{Retry: *t.Retry}
		problems = append(problems, spec.Check(nil))
	}

	return errors.Join(problems...)
}

// Tries returns the number of the run among the attempts of its execution, from 1.
func (s *Start) Tries() int { return max(s.Attempt, 1) }

// Awake returns the earliest time that the code of the run can see. That is the beginning of its
// history or, if its start was postponed, its start time.
func (s *Start) Awake() Time { return max(s.Zero(), s.Begins) }

// TimeoutExecution is the type of the failure of an execution that took longer than its terms
// allow. Its kind is FailureTimeout.
const TimeoutExecution = "timeout.execution"

// TimedOut reports whether the execution ended because it took longer than its terms allow. Its
// code could not prevent that.
func (o *Outcome) TimedOut() bool {
	return o.Status == Failed && o.Failure != nil && o.Failure.Kind == FailureTimeout && o.Failure.Type == TimeoutExecution
}
