package storetest_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store/storetest"
)

// TestGeneratedValuesSurviveTheStoredForm checks that the stored form can hold every value that the
// suite writes. If this test fails, the mistake is in the codec and not in an adapter.
func TestGeneratedValuesSurviveTheStoredForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		check := func(want, got any, err error) {
			if d := storetest.Diff(want, got); err != nil || d != "" {
				t.Fatalf("%v (-want +got):\n%s", err, d)
			}
		}

		e := storetest.Events().Draw(t, "event")
		event, err := model.DecodeEvent(e.Seq, e.At, e.Kind, model.AppendEvent(nil, &e))
		check(e, event, err)
		m := storetest.Messages().Draw(t, "message")
		message, err := model.DecodeMessage(model.AppendMessage(nil, &m))
		check(m, message, err)
		n := storetest.Entities().Draw(t, "entity")
		entity, err := model.DecodeEntity(n.Address, n.Version, n.Changed, model.AppendEntity(nil, &n))
		check(n, entity, err)
		s := storetest.Starts().Draw(t, "start")
		start, err := model.DecodeStart(s.Address, s.Run, s.At, model.AppendStart(nil, &s))
		check(s, start, err)
		o := storetest.Outcomes().Draw(t, "outcome")
		outcome, err := model.DecodeOutcome(o.Status, o.At, model.AppendOutcome(nil, &o))
		check(o, outcome, err)
		r := rapid.SliceOfN(storetest.Reasons(), 0, 3).Draw(t, "reasons")
		reasons, err := model.DecodeReasons(model.AppendReasons(nil, r))
		check(r, reasons, err)
	})
}

func TestNamesAreWhatTheySay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for _, most := range []int{64, storetest.MaxName, storetest.MaxKey} {
			if s := storetest.Names(most).Draw(t, "name"); s == "" || len(s) > most {
				t.Fatalf("%d bytes, want 1 to %d", len(s), most)
			}
		}
	})
}
