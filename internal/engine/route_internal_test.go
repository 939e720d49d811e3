package engine

import (
	"testing"

	"github.com/perdure/perdure/internal/fault"
)

// A refusal says that a message has no effect, unless an earlier owner may have applied the
// message.
func TestRefusalOfWhatMayHaveBeenTaken(t *testing.T) {
	t.Parallel()
	for kind, want := range map[fault.Kind]fault.Kind{
		fault.Exhausted: fault.Unavailable, fault.Blocked: fault.Unavailable, fault.Corrupt: fault.Unavailable, fault.NotFound: fault.NotFound, fault.Conflict: fault.Conflict,
	} {
		err := fault.New(kind, "no")
		if got := fault.KindOf(unsure(err, true)); got != want {
			t.Errorf("%s after a lost lease is %s, want %s", kind, got, want)
		}
		if got := fault.KindOf(unsure(err, false)); got != kind {
			t.Errorf("%s becomes %s", kind, got)
		}
	}
	if unsure(nil, true) != nil {
		t.Error("success is an error")
	}
}
