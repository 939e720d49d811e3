package cli

import (
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The first program of the docs and the command line use the same store.
func TestDefaultStoreOfTheDocs(t *testing.T) {
	t.Parallel()
	opened := regexp.MustCompile(`MustOpen\("([^"]*)"`)
	for _, name := range []string{"README.md", "docs/getting-started.md", "examples/hello/main.go"} {
		if got := opened.FindStringSubmatch(readDoc(t, name)); got == nil || got[1] != defaultStore {
			t.Errorf("%s opens %v, the command line %s", name, got, defaultStore)
		}
	}
}

// docs/cli.md and the help list every exit code.
func TestExitCodesOfTheDocs(t *testing.T) {
	t.Parallel()
	page, help := readDoc(t, "docs/cli.md"), newRoot(&options{}).Long
	for _, e := range exits {
		if row := fmt.Sprintf("| %d | %s |", e.code, e.means); !strings.Contains(page, row) {
			t.Errorf("docs/cli.md has no %q", row)
		}
		if text := fmt.Sprintf("%d %s", e.code, e.means); !strings.Contains(help, text) {
			t.Errorf("--help has no %q", text)
		}
	}
}

// The usage of a verb is a line that can be typed. It has names of arguments, or --query instead of
// an argument.
func TestUsageOfVerbs(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"workflow signal": "signal workflow/key name | --query q name",
		"workflow cancel": "cancel workflow/key | --query q",
		"workflow retry":  "retry workflow/key | --query q",
		"workflow reset":  "reset workflow/key | --query q",
	} {
		cmd, _, err := newRoot(&options{}).Find(strings.Fields(path))
		if err != nil || cmd.Use != want {
			t.Errorf("perdure %s: usage %q, %v; want %q", path, cmd.Use, err, want)
		}
	}
}

func TestBuild(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}}
	got := buildOf(info, true)
	want := build{Version: "v1.2.3", Commit: "abc", Modified: true, Go: got.Go, Platform: got.Platform}
	if diff := cmp.Diff(want, got); diff != "" || got.Go == "" || got.Platform == "" {
		t.Error(diff)
	}
	if v := buildOf(nil, false).Version; v != "(devel)" {
		t.Errorf("version %s of a build that nothing is known of", v)
	}
	if r := runOn(t, &prepared{}, 80, "version"); r.code != 0 || !strings.Contains(r.out, "Schemas  file ") || !strings.Contains(r.out, "postgres ") {
		t.Errorf("exit %d: %s%s", r.code, r.out, r.complaints)
	}
}
