package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/fault"
)

// Open refuses a file on a network file system, and a file that every user may write, before it
// creates anything. With ReadOnly it accepts such a file.
func TestOpenRefusesThePlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shared := Config{Path: filepath.Join(dir, "a.db"), FileSystem: func(string) string { return "NFS" }}
	_, err := Open(t.Context(), shared)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "network file system NFS") || !strings.Contains(err.Error(), "use a local disk") {
		t.Errorf("a network file system: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the directory has %v, %v", entries, err)
	}

	local := Config{Path: shared.Path}
	s, err := Open(t.Context(), local)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	shared.ReadOnly = true
	if s, err = Open(t.Context(), shared); err != nil {
		t.Fatalf("read on a network file system: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	if err := os.Chmod(local.Path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), local); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that all may write: %v", err)
	}
}
