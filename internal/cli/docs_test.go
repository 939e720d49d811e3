package cli

import (
	"fmt"
	"os"
	"path/filepath"
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

// commandInDocs matches a command in a document: a line of its own, or a piece of text in
// backquotes, which may continue on the next line.
var commandInDocs = regexp.MustCompile("(?m)^(?:[ >]*|\\$ )(perdure [a-z][^\\n`]*)$|`(perdure [a-z][^`]*)`")

// placeholder matches the usage of a command in place of the command itself, and lines that only a
// shell can read. The command line gets the command completion only when it runs.
var placeholder = regexp.MustCompile(`[][|…<>{}]|\.\.\.|, | #| &|\$\(| n$|\\$|^perdure completion `)

// word matches an argument of a command. Quotes of the shell may enclose it, or a part of it.
var word = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)

// Every command in the documents exists, and takes the flags and the number of arguments that the
// document gives it. A text that only names a command needs no arguments.
func TestCommandsOfTheDocs(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, name := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		if filepath.Base(name) == "cli-json.md" {
			continue // another test reads its list of commands
		}
		for _, m := range commandInDocs.FindAllStringSubmatch(readDoc(t, strings.TrimPrefix(name, "../../")), -1) {
			text := strings.Join(strings.Fields(m[1]+m[2]), " ")
			if placeholder.MatchString(text) {
				continue
			}
			checked++
			if err := checkCommand(text); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(name), text, err)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d commands were found", checked)
	}
}

// checkCommand reports what is wrong with a command line.
func checkCommand(text string) error {
	var args []string
	for _, w := range word.FindAllString(text, -1)[1:] {
		args = append(args, strings.NewReplacer("'", "", `"`, "").Replace(w))
	}
	cmd, rest, err := newRoot(&options{}).Find(args)
	if err != nil {
		return err
	}
	if n := len(rest); n > 0 && strings.HasPrefix(rest[n-1], "--") {
		// A text that only names a flag does not say its value.
		if f := cmd.Flags().Lookup(rest[n-1][2:]); f != nil || cmd.InheritedFlags().Lookup(rest[n-1][2:]) != nil {
			rest = rest[:n-1]
		}
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if rest = cmd.Flags().Args(); len(rest) == 0 {
		return nil
	}
	if cmd.HasSubCommands() && cmd.Args == nil {
		return fmt.Errorf("%s has no command %s", cmd.CommandPath(), rest[0])
	}
	return cmd.ValidateArgs(rest)
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
