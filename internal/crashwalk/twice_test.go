package crashwalk_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/internal/replay"
)

// TestScenariosExecutedTwice runs all scenarios without a fault, in the mode of user tests: the SDK
// executes code twice, and code leaves memory whenever it waits. The checks of the SDK must find
// nothing, and the checks after every run must hold.
func TestScenariosExecutedTwice(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var found []string

			checks := &replay.Checks{Twice: true, Found: func(m replay.Mistake) {
				mu.Lock()
				defer mu.Unlock()
				found = append(found, m.Text)
			}}

			r := s.trialWith(t, &strike{}, nil, checks)
			if r.err != nil {
				t.Error(r.report())
			}
			mu.Lock()
			defer mu.Unlock()

			for _, text := range found {
				switch {
				case strings.Contains(text, "is repeated without a key"): // some scenarios do this
				case strings.Contains(text, "event 1 records step a") && strings.HasPrefix(s.name, "blocked "):
					// The scenarios named "blocked …" do this on purpose.
				default:
					t.Errorf("found: %s", text)
				}
			}
		})
	}
}
