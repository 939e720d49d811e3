package replay_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// FailureOf cuts the text of a failure when it creates the failure. So the code sees the same text
// as a replay.
func TestTextsAreCutBeforeTheCodeSeesThem(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for name, f := range map[string]*model.Failure{
		"error": replay.FailureOf(errors.New(long)),
		"panic": replay.PanicFailure(long),
		"stack": replay.FailureOf(&model.Failure{Message: "no", Stack: long}),
	} {
		if f.Size() > 3*model.MaxErrorText || f.Bounded() != f {
			t.Errorf("%s: a failure of %d bytes", name, f.Size())
		}
	}
}
