package cli_test

import (
	"path/filepath"
	"testing"
)

// Scripts go by the exit code: what was typed wrongly is 2, whoever notices it, and a name in an error is what was typed.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	do := on(t, "file:"+filepath.Join(t.TempDir(), "x.db"))
	do("Try --help", 2, "nonsense")
	do(`unknown command "nonsense" for "perdure task"`, 2, "task", "nonsense")
	do("Try --help", 2, "task", "show")
	do("Try --help", 2, "task", "list", "--nonsense")
	do("Try --help", 2, "breaker", "pause", "bank")
	do("Try --help", 2, "schedule", "backfill", "nightly", "--from", "2026-11-01T00:00:00Z")
	do("Submit tasks", 0, "task")
	do("x.db does not exist", 3, "task", "show", "Mail/Ann")
}
