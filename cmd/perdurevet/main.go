// Command perdurevet finds mistakes in programs that use Perdure: workflow code that behaves
// differently on replay, durable calls inside steps, variables that are lost because the history
// does not record them. See docs/vet.md.
//
//	perdurevet ./...
//	go vet -vettool=$(which perdurevet) ./...
//
// The first command runs the second one, so both use the build cache for their results.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/perdure/perdure/perdurevet"
)

func main() {
	args := os.Args[1:]
	switch {
	case len(args) > 0 && slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]):
		os.Exit(help(args[1:]))
	case isVetTool(args):
		unitchecker.Main(perdurevet.Analyzers()...) // exits
	default:
		os.Exit(vet(args))
	}
}

// help lists all checks, or prints the documentation of the named checks.
func help(names []string) int {
	all := perdurevet.Analyzers()
	if len(names) == 0 {
		fmt.Print("perdurevet finds mistakes in programs that use Perdure.\n\n" +
			"  perdurevet [-check] [-check=false] [packages]\n" +
			"  go vet -vettool=$(which perdurevet) [packages]\n\n" +
			"Silence a finding with a reason: //perdure:allow <check> <reason>\n\nChecks:\n\n")
		for _, a := range all {
			fmt.Printf("  %-12s %s\n", a.Name, a.Doc)
		}
		return 0
	}

	for _, name := range names {
		i := slices.IndexFunc(all, func(a *analysis.Analyzer) bool { return a.Name == name })
		if i < 0 {
			fmt.Fprintf(os.Stderr, "perdurevet: there is no check %q; `perdurevet help` lists them\n", name)
			return 2
		}
		fmt.Printf("%s: %s\n%s\n", name, all[i].Doc, all[i].URL)
	}

	return 0
}

// isVetTool reports whether the go command calls this program as a vet tool.
func isVetTool(args []string) bool {
	for _, arg := range args {
		if strings.HasSuffix(arg, ".cfg") || arg == "-flags" || strings.HasPrefix(arg, "-V") {
			return true
		}
	}
	return false
}

// vet runs go vet with this program as its tool.
func vet(args []string) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "perdurevet:", err)
		return 2
	}

	cmd := exec.Command("go", append([]string{"vet", "-vettool=" + self}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError

	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		fmt.Fprintln(os.Stderr, "perdurevet:", err)
		return 2
	}
}
