package cli

import (
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/authz"
)

// The text about the rights of a caller names each group of actions that the caller may take
// completely, and then the single actions of other groups.
func TestRights(t *testing.T) {
	t.Parallel()
	var reads []string
	for _, r := range authz.Table() {
		if r.Group == authz.Connect || r.Group == authz.Read {
			reads = append(reads, string(r.Action))
		}
	}
	for want, actions := range map[string][]string{
		"":              nil,
		"connect, read": reads,
		"connect, read, execution:start, new:action": append(slices.Clone(reads), "execution:start", "new:action"),
		"execution:start": {"execution:start"},
	} {
		if got := (&whoami{Actions: actions}).rights(); got != want {
			t.Errorf("%q: %q, want %q", actions, got, want)
		}
	}
}
