package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every alias finds its command, no two commands of a group share a name, every noun has its
// plural, and docs/cli.md lists all aliases.
func TestAliases(t *testing.T) {
	t.Parallel()
	root, page := newRoot(&options{}), readDoc(t, "docs/cli.md")
	for path, names := range aliases {
		words := strings.Fields(path)
		want, _, err := root.Find(words)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			got, rest, err := root.Find(append(slices.Clone(words[:len(words)-1]), name))
			if err != nil || got != want || len(rest) > 0 {
				t.Errorf("%s does not find %s: %v", name, path, err)
			}
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("docs/cli.md has no %s, another name of %s", name, path)
			}
		}
	}

	var walk func(*cobra.Command)
	walk = func(group *cobra.Command) {
		taken := map[string]string{}
		for _, c := range group.Commands() {
			for _, name := range append([]string{c.Name()}, c.Aliases...) {
				if taken[name] != "" {
					t.Errorf("%s of %s is the name of %s and of %s", name, group.CommandPath(), taken[name], c.Name())
				}
				taken[name] = c.Name()
			}
			walk(c)
		}
	}
	walk(root)

	for _, c := range root.Commands() {
		lists := slices.ContainsFunc(c.Commands(), func(s *cobra.Command) bool { return s.Name() == "list" })
		if lists && len(c.Aliases) == 0 && c.Name() != "audit" {
			t.Errorf("the noun %s has no plural", c.Name())
		}
	}
}

// wanted are the commands that people look for because other tools have them.
const wanted = `
workflow: start execute list count describe show steps result signal query update signal-with-start cancel terminate pause unpause reset fork restart-from delete stack explain
activity: list describe complete fail pause unpause reset update-options heartbeat
entity: list get edit patch call signal delete history clear
lock: list describe waiters release
promise: list resolve reject
queue: list describe pause resume drain set
limit: list describe set disable enable delete
breaker: list trip reset pause-until
schedule: create list describe update toggle trigger backfill list-matching-times delete apply
dlq: list show redrive edit purge
batch: start list describe stop
worker: list describe set-current set-ramping versions
config: set use list show
migrate: up down status
skills: install
: dev serve doctor bench backup restore sql verify docs tui login whoami`

var quoted = regexp.MustCompile("`([^`]+)`")

// Every command that people look for exists, or docs/cli.md says what to use instead. The page is
// right: the commands that it recommends exist, and the commands that it says do not exist are
// missing.
func TestVerbsOfOtherTools(t *testing.T) {
	t.Parallel()
	root := newRoot(&options{})
	exists := func(command string) bool {
		words := slices.DeleteFunc(strings.Fields(command), func(w string) bool { return strings.HasPrefix(w, "-") })
		cmd, rest, err := root.Find(words)
		return err == nil && cmd != root && (len(rest) == 0 || !cmd.HasAvailableSubCommands())
	}

	_, section, _ := strings.Cut(readDoc(t, "docs/cli.md"), "### Verbs of other tools")
	section, _, _ = strings.Cut(section, "\n## ")
	other := map[string]bool{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if other[m[1]] = true; exists(m[1]) {
				t.Errorf("docs/cli.md says that there is no %s", m[1])
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[2], -1) {
			if c := m[1]; !strings.HasPrefix(c, "-") && !strings.HasSuffix(c, "/") && c != "help" && !exists(c) {
				t.Errorf("docs/cli.md names %s, which does not exist", c)
			}
		}
	}

	for line := range strings.Lines(strings.TrimSpace(wanted)) {
		noun, verbs, _ := strings.Cut(line, ":")
		for verb := range strings.FieldsSeq(verbs) {
			if c := strings.TrimSpace(noun + " " + verb); !exists(c) && !other[c] {
				t.Errorf("there is no %s, and docs/cli.md does not say what to use", c)
			}
		}
	}
}

// Every flag of a server is in the docs.
func TestServeFlagsAreDocumented(t *testing.T) {
	t.Parallel()
	serve, _, err := newRoot(&options{}).Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	pages := readDoc(t, "docs/server.md") + readDoc(t, "docs/security.md")
	for key := range configurable(serve) {
		if flag := "--" + strings.ReplaceAll(key, "_", "-"); key != "verbose" && key != "schema" && !strings.Contains(pages, flag) {
			t.Errorf("docs/server.md and docs/security.md have no %s", flag)
		}
	}
}

// --follow is another name of --watch, on every command that watches.
func TestFollow(t *testing.T) {
	t.Parallel()
	found := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
			if c.Flags().Lookup("watch") == nil {
				continue
			}
			found++
			if err := c.ParseFlags([]string{"--follow"}); err != nil || !c.Flags().Changed("watch") {
				t.Errorf("%s --follow: %v", c.CommandPath(), err)
			}
		}
	}
	walk(newRoot(&options{}))
	if found < 5 {
		t.Errorf("only %d commands have --watch", found)
	}
}
