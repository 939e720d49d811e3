package node

import (
	"strings"
	"testing"
)

// An error about a URL that is not known does not show its password, and says which URLs are known.
func TestUnknownStoreHidesItsPassword(t *testing.T) {
	t.Parallel()
	cfg := Config{URL: "mysql://user:secret@host/app"}
	_, check := CheckSchema(t.Context(), cfg)
	_, script := MigrationScript(t.Context(), cfg)
	for what, err := range map[string]error{"check": check, "script": script} {
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "postgres://") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := CheckSchema(t.Context(), Config{URL: "memory:"}); err == nil || !strings.Contains(err.Error(), "in memory has no schema") {
		t.Errorf("a store in memory: %v", err)
	}
}
