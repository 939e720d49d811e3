package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/bench"
)

func TestArgumentsOfTemporal(t *testing.T) {
	t.Parallel()
	got := strings.Join(temporalArgs("/data", 7), " ")
	want := "server start-dev --headless --ip 127.0.0.1 --port 7 --db-filename /data/temporal.db --sqlite-pragma journal_mode=wal"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestConfigurationOfRestate(t *testing.T) {
	t.Parallel()
	lines := strings.Split(restateConfig("/data", restatePorts{node: 1, ingress: 2, admin: 3, endpoint: 4}), "\n")
	for _, want := range []string{
		`base-dir = "/data/data"`, `default-num-partitions = 2`, `bind-address = "127.0.0.1:1"`, `bind-address = "127.0.0.1:2"`, `bind-address = "127.0.0.1:3"`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("the configuration lacks %s:\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

func TestServersHaveOnlyWorkflowsOfThreeSteps(t *testing.T) {
	t.Parallel()
	for _, s := range []bench.System{&restateSystem{}, &temporalSystem{}} {
		for _, err := range []error{s.Chain(t.Context(), "", 1), s.FanOut(t.Context(), "", 1), s.StartSleep(t.Context(), "", 1)} {
			if !errors.Is(err, errOnlyThree) {
				t.Errorf("%T: got %v", s, err)
			}
		}
		if _, parted := s.(bench.Parted); !parted {
			t.Errorf("%T does not report the process of its server", s)
		}
	}
}

func TestThisIsAPartOfTheBenchmark(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"-restate", "/bin/restate-server"}); err == nil || !strings.Contains(err.Error(), "-peers perdure-dial,restate,temporal") {
		t.Errorf("got %v, want an error that says how to run the benchmark", err)
	}
}
