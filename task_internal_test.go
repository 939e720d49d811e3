package perdure

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/model"
)

// TestStoredPolicy checks the form in which the engine stores policies.
func TestStoredPolicy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		p    RetryPolicy
		want model.Retry
	}{
		"none":         {RetryPolicy{}, model.Retry{}},
		"rounded":      {RetryPolicy{Coefficient: 2.3, Jitter: 0.1}, model.Retry{Coefficient: 2300, Jitter: 100}},
		"long":         {RetryPolicy{Initial: time.Hour}, model.Retry{Initial: time.Hour, Max: time.Hour}},
		"the most":     {RetryPolicy{Initial: maxTaskTime, Max: maxTaskTime, Coefficient: maxCoefficient}, model.Retry{Initial: maxTaskTime, Max: maxTaskTime, Coefficient: 1e9}},
		"constant":     {Constant(3, 0), model.Retry{MaxAttempts: 3, Initial: 1, Max: 1, Coefficient: 1000}},
		"names, once":  {RetryPolicy{Except: []ErrorKind{ErrorNamed("panic"), ErrorNamed("panic"), ErrorIs(ErrConflict), ErrorIs(errUnknown)}}, model.Retry{Final: []string{"panic", "already_exists", "conflict"}}},
		"without name": {RetryPolicy{Except: []ErrorKind{ErrorType[*RemoteError]()}}, model.Retry{}},
	} {
		if diff := cmp.Diff(c.want, c.p.toModel()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

var errUnknown = Permanent(ErrTimeout)

// TestUnreadableAfter counts how often a task with an unreadable input is tried. Too many attempts
// would make the history too large, but the task must start soon after an operator has restored the
// key.
func TestUnreadableAfter(t *testing.T) {
	t.Parallel()
	c := &model.Claim{Scheduled: 1, Claimed: 1}
	tries := 0
	for ; c.Claimed.Sub(c.Scheduled) < 3*24*time.Hour; tries++ {
		after := unreadableAfter(c)
		if after < minUnreadable || after > maxUnreadable {
			t.Fatalf("after %s it waits for %s", c.Claimed.Sub(c.Scheduled), after)
		}
		c.Claimed = c.Claimed.Add(after)
	}
	if tries < 100 || tries > 500 {
		t.Errorf("%d tries in three days", tries)
	}
}
