package cli

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz/policy"
)

// A server reads its policies again when their file changes. Policies that cannot be used change
// nothing, and the health of the server says why.
func TestPoliciesAreReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "company.cedar")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(policy.DefaultText())
	var logged strings.Builder
	p, err := readPolicyFile(file, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	var noted []api.AuditEntry
	note := func(_ context.Context, e api.AuditEntry) error {
		noted = append(noted, e)
		return nil
	}
	reader := &authn.Identity{Name: "r", Tenant: "acme", Roles: []string{"reader"}}
	step := func(what string, starts, problem bool, notes int) {
		t.Helper()
		for range 2 { // the second reload finds nothing new
			p.reload(t.Context(), reloading{note: note})
			if got := p.Authorize(reader, "execution:start") == nil; got != starts {
				t.Errorf("%s: a reader may start: %v", what, got)
			}
			if got := len(p.problems()) > 0; got != problem {
				t.Errorf("%s: problems %v", what, p.problems())
			}
			if len(noted) != notes {
				t.Errorf("%s: %d entries, want %d: %+v", what, len(noted), notes, noted)
			}
		}
	}

	step("unchanged", false, false, 0)
	write("permit (principal, action, resource")
	step("broken", false, true, 1)
	write("")
	step("empty", false, true, 2)
	write(strings.Replace(policy.DefaultText(), `Role::"reader",`, `Role::"reader", `, 1))
	step("equal", false, false, 3)
	write("permit (principal, action, resource);")
	step("all may do all", true, false, 4)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	step("removed", true, true, 5)
	write("permit (principal, action, resource);")
	step("back", true, false, 5)

	if !strings.Contains(logged.String(), "the former ones stay") || !strings.Contains(logged.String(), "the policies were read again") {
		t.Error(logged.String())
	}
	if e := noted[0]; e.Outcome != api.AuditFailed || e.Error == "" || e.Action != "policy:reload" || string(e.Before) == string(e.After) {
		t.Errorf("%+v", e)
	}
}
