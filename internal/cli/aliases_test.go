package cli

import (
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
