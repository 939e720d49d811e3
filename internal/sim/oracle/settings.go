package oracle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	limits "github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// PageStored records a stored page of the ledger of permits. It counts the shares of dead nodes
// that were on the earlier version of the page and are no longer there.
func (s *Oracle) PageStored(x *store.Setting) {
	list, sole, err := limits.Read(x.Body)
	if err != nil {
		s.Fail("page: %v", err)
	}

	places := []limit.Place{sole}
	for _, e := range list {
		for _, l := range e.Leases {
			if !slices.Contains(places, l.Place) {
				places = append(places, l.Place)
			}
		}
	}

	before := s.places[x.Name]
	s.places[x.Name] = places
	for _, p := range before {
		if p != 0 && !slices.Contains(places, p) && !s.Ledger.lives(int64(p)) {
			s.Did(scenario.OpCleaned)
			return
		}
	}
}

// lives reports whether the node of an epoch has a lease.
func (l *ledger) lives(epoch int64) bool {
	for _, m := range l.Nodes {
		if m.Epoch == epoch {
			return m.Alive
		}
	}
	return false
}

// DescribeSetting lists the leases on a page, or the state of a breaker, for the trace.
func (s *Oracle) DescribeSetting(x *store.Setting) string {
	switch x.Kind {
	case scenario.SettingState:
		o, err := breaker.Decode(x.Body)
		if err != nil {
			return ": " + err.Error()
		}
		st := o.Status(s.StoreTime())
		return fmt.Sprintf(": %s since %s until %s, held %v (%s), %d failures, %d probes", st.State, st.Since, st.Until, st.Held, st.Why, st.Failures, st.Probes)
	case scenario.SettingPage:
		list, sole, err := limits.Read(x.Body)
		if sole != 0 {
			return fmt.Sprintf(": all of it is with place %d, %v", sole, err)
		}
		return fmt.Sprintf(": %+v, %v", list, err)
	default:
		return ": " + strings.TrimSpace(string(x.Body))
	}
}
