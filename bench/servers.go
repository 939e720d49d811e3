package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/bench"
)

// server is a peer that brings a server and a store along. The user has installed the server.
type server struct {
	program string // name of the program
	sdk     string // module of the SDK
	store   string // the store and its settings, for the report
}

var servers = map[string]server{
	bench.Restate:  {"restate-server", "github.com/restatedev/sdk-go", "its own log and RocksDB, 2 partitions"},
	bench.Temporal: {"temporal", "go.temporal.io/sdk", "server start-dev on a SQLite file, journal_mode=wal"},
}

// serverTime is the shortest measurement of a server. With 64 clients a workflow of Temporal takes
// seconds, so in a shorter measurement many workflows would start before it or end after it.
const serverTime = 10 * time.Second

// addServers adds the peers in paths that have their programs installed. paths maps a peer to the
// path of its program, or to "" for the program on $PATH. missing says why other peers do not take
// part. The caller calls remove after the measurements. A path that is wrong is an error, so that
// the user learns of it before the measurements.
func addServers(ctx context.Context, o *bench.Options, paths map[string]string) (missing map[string]error, remove func(), err error) {
	missing, remove = map[string]error{}, func() {}
	found := map[string]bench.Program{}
	for name, path := range paths {
		p, err := bench.FindProgram(ctx, servers[name].program, path)
		switch {
		case err == nil:
			found[name] = p
		case path != "":
			return nil, remove, fmt.Errorf("-%s: %w", name, err)
		default:
			missing[name] = fmt.Errorf("%w; install the server, or give the path of the program with -%s", err, name)
		}
	}
	if len(found) == 0 {
		return missing, remove, nil
	}

	bin, err := os.MkdirTemp("", "bench-servers-")
	if err != nil {
		return nil, remove, err
	}
	remove = func() { _ = os.RemoveAll(bin) }
	o.Progress("own       building the clients of " + fmt.Sprint(slices.Sorted(maps.Keys(found))))
	child := filepath.Join(bin, "servers")
	build := exec.CommandContext(ctx, "go", "build", "-C", "servers", "-o", child, ".")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return nil, remove, fmt.Errorf("build the clients of servers, which works in the directory bench of the repository (or leave them out with -peers bare,perdure-dial,dbos,river): %w", err)
	}

	for name, program := range found {
		sdk, err := versionOf(child, servers[name].sdk)
		if err != nil {
			return nil, remove, err
		}
		o.Peers[name] = bench.Peer{
			Server:   fmt.Sprintf("%s (%s); %s %s", program.Version, servers[name].store, servers[name].sdk, sdk),
			Least:    serverTime,
			Commands: map[bench.Kind][]string{bench.Own: {child, "-" + name, program.Path}},
		}
	}
	return missing, remove, nil
}

// versionOf returns the version of a module that a program is linked with.
func versionOf(program, module string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", err
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version, nil
		}
	}
	return "", errors.New(program + " is not linked with " + module)
}
