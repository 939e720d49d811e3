// Command perdurevet finds mistakes in programs that use Perdure: workflow code that would not do the same on replay,
// durable calls inside steps, state that no journal keeps. See docs/vet.md.
//
//	perdurevet ./...
//	go vet -vettool=$(which perdurevet) ./...
//
// Both are the same: the first runs the second, so that results are kept in the build cache.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/perdure/perdure/perdurevet"
)

func main() {
	if asked(os.Args[1:]) {
		unitchecker.Main(perdurevet.Analyzers()...) // exits
	}
	os.Exit(vet(os.Args[1:]))
}

// asked reports whether this is the go command speaking, or somebody who wants help.
func asked(args []string) bool {
	if len(args) > 0 && args[0] == "help" {
		return true
	}
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
