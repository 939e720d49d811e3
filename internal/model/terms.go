package model

import (
	"errors"
	"fmt"
	"time"
)

// Terms are what a start says about the times of an execution: when its code begins, when it must
// have ended, and how a run that failed is repeated. A start keeps Timeout and Retry, because every
// later run of the execution has them too.
type Terms struct {
	// Delay and NotBefore put the beginning off, by a time or to a time. At most one of them is
	// set.
	Delay     time.Duration `cbor:"1,keyasint,omitempty"`
	NotBefore Time          `cbor:"2,keyasint,omitempty"`
	// Timeout limits the whole execution, from its beginning over all of its runs; 0 for no limit.
	Timeout time.Duration `cbor:"3,keyasint,omitempty"`
	// Retry is when a failed run is followed by another one with the same input. When it is nil,
	// the policy of the workflow counts.
	Retry *Retry `cbor:"4,keyasint,omitempty"`
}

// Kept is the part of the terms that later runs have as well; nil when that is nothing.
func (t *Terms) Kept() *Terms {
	if t == nil || t.Timeout == 0 && t.Retry == nil {
		return nil
	}
	return &Terms{Timeout: t.Timeout, Retry: t.Retry}
}

// Check says what is wrong with terms: all of it.
func (t *Terms) Check() error {
	var problems []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"start delay", t.Delay}, {"execution timeout", t.Timeout}} {
		if d.value < 0 || d.value > MaxTaskTime {
			problems = append(problems, fmt.Errorf("its %s is %s: it lies between 0 and a hundred years", d.name, d.value))
		}
	}

	if t.NotBefore < 0 || t.NotBefore > MaxTime {
		problems = append(problems, fmt.Errorf("its start time is %d microseconds: it lies between 1970 and 9999", t.NotBefore))
	}
	if t.Delay != 0 && t.NotBefore != 0 {
		problems = append(problems, errors.New("it has a start delay and a start time: one of both"))
	}

	if t.Retry != nil {
		spec := TaskSpec{Retry: *t.Retry}
		problems = append(problems, spec.Check(nil))
	}

	return errors.Join(problems...)
}

// Tries is which attempt of its execution the run is, from 1.
func (s *Start) Tries() int { return max(s.Attempt, 1) }

// Awake is the earliest time that code of the run can see: when its history begins or, if it was
// put off, when its code does.
func (s *Start) Awake() Time { return max(s.Zero(), s.Begins) }

// TimeoutExecution is the type of the failure of an execution that took longer than its terms
// allow. Its kind is FailureTimeout.
const TimeoutExecution = "timeout.execution"

// TimedOut reports whether the execution ended because it took longer than its terms allow. Its
// code had no say in that.
func (o *Outcome) TimedOut() bool {
	return o.Status == Failed && o.Failure != nil && o.Failure.Kind == FailureTimeout && o.Failure.Type == TimeoutExecution
}
