// Command servers runs the measurements of Restate and Temporal. It starts their servers, which the
// user has installed, and is their client and their worker. The command of the module bench builds
// and starts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

// run runs the measurement that this process was started for.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("servers", flag.ExitOnError)
	restate := flags.String("restate", "", "server program of Restate")
	temporal := flags.String("temporal", "", "program of Temporal")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !bench.IsChild() {
		return errors.New("this is a part of the benchmark: cd bench && go run . -peers perdure-dial,restate,temporal")
	}

	return bench.Child(ctx, map[string]bench.Peer{
		bench.Restate:  {Server: *restate, Workflows: opener(*restate, openRestate)},
		bench.Temporal: {Server: *temporal, Workflows: opener(*temporal, openTemporal)},
	})
}

// opener returns the function that opens a system whose server is the program with this path.
func opener(program string, open func(context.Context, bench.Program, string) (bench.System, error)) bench.Opener {
	return func(ctx context.Context, place bench.Place, _ func(int)) (bench.System, error) {
		return open(ctx, bench.Program{Path: program}, place.Path)
	}
}

// onlyThree is the part of bench.System that the benchmark does not measure with these systems.
type onlyThree struct{}

var errOnlyThree = errors.New("the benchmark has only workflows of three steps for this system")

// Chain implements bench.System.
func (onlyThree) Chain(context.Context, string, int) error { return errOnlyThree }

// FanOut implements bench.System.
func (onlyThree) FanOut(context.Context, string, int) error { return errOnlyThree }

// StartSleep implements bench.System.
func (onlyThree) StartSleep(context.Context, string, time.Duration) error { return errOnlyThree }
