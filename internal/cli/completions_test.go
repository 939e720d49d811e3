package cli

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// newNames are the commands whose argument is a new name, a program or a file, so that there is
// nothing to complete.
var newNames = []string{"config set", "tenant create", "deploy-check", "dev", "completion", "help"}

// Shells complete the first argument of every command that has one.
func TestEveryArgumentIsCompleted(t *testing.T) {
	t.Parallel()
	takes := regexp.MustCompile(`^\S+ \[?[a-z]`)
	found := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
			name := strings.TrimPrefix(c.CommandPath(), "perdure ")
			if !takes.MatchString(c.Use) || slices.Contains(newNames, name) || strings.HasPrefix(c.Use, c.Name()+" [flags]") {
				continue
			}
			if found++; c.ValidArgsFunction == nil && len(c.ValidArgs) == 0 {
				t.Errorf("no completion for perdure %s: %s", name, c.Use)
			}
		}
	}
	walk(newRoot(&options{}))
	if found < 80 {
		t.Errorf("only %d commands have arguments", found)
	}
}

// Completions suggest what exists and begins with the text, and nothing else.
func TestCompletions(t *testing.T) {
	t.Parallel()
	p := &prepared{}
	for args, want := range map[string]string{
		"workflow describe order/4":          "order/42 order/" + hashA,
		"workflow start ":                    "batch order report saving",
		"task submit m":                      "mail",
		"task show mail/":                    "mail/" + uuidA,
		"queue pause m":                      "mails",
		"worker describe shop":               "shop-1-4711 shop-1.example.com:4711",
		"worker describe session_K":          "session_K7X2M9QFH3T5RSWZ1BCD4EGJKN",
		"worker drain session_H":             "session_H3T5RSWZ1BCD4EGJKNK7X2M9QF",
		"cluster drain shop-3":               "shop-3.example.com:4713",
		"key revoke k":                       "k3v9x2m7q1ab",
		"entity list a":                      "account",
		"setting set l":                      "limit",
		"dlq show dead_7":                    "dead_7",
		"workflow list --workflow o":         "order",
		"task list --queue d":                "default",
		"task list --activity c":             "charge",
		"key create --role op":               "operator",
		"workflow list --status t":           "terminated",
		"workflow start --like order/42":     "order/42",
		"workflow describe order/42 another": "",
	} {
		words := strings.Split(args, " ")

		var out, complaints bytes.Buffer
		o := &options{Streams: Streams{In: strings.NewReader(""), Out: &out, Err: &complaints}, connect: connectTo(p)}
		if code := o.run(t.Context(), append([]string{"__complete", "--store", "postgres://prepared"}, words...)); code != 0 {
			t.Errorf("%s: exit %d: %s", args, code, &complaints)
		}
		names, _, _ := strings.Cut("\n"+out.String(), "\n:") // the last line is for the shell
		got := strings.Fields(names)

		for w := range strings.FieldsSeq(want) {
			if !slices.ContainsFunc(got, func(name string) bool { return strings.HasPrefix(name, w) }) {
				t.Errorf("%s: %q, want %q", args, got, want)
			}
		}
		if last := words[len(words)-1]; slices.ContainsFunc(got, func(name string) bool { return !strings.HasPrefix(name, last) }) || want == "" && len(got) > 0 {
			t.Errorf("%s: %q", args, got)
		}
	}
}
