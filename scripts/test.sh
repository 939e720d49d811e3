#!/usr/bin/env bash
# The whole fast suite, from a fresh clone: installs what is missing, builds, vets, tests with the race detector,
# checks the examples, and compiles the modules beside ours.
#
#   scripts/test.sh            everything
#   GOTESTFLAGS=-v …           further flags for `go test`
#
# Needs no running database: the tests start private PostgreSQL servers (internal/pgtest).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# A clone that belongs to somebody else (a container, CI) makes git refuse, and go's stamping of binaries with it.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"

# step NAME COMMAND…: announces a step and its duration, and stops the script when it fails.
step() {
	local name=$1 begin=$SECONDS
	shift
	printf '\n==> %s\n' "$name"
	if ! "$@"; then
		printf '==> %s: FAILED after %d s\n' "$name" $((SECONDS - begin)) >&2
		exit 1
	fi
	printf '==> %s: ok, %d s\n' "$name" $((SECONDS - begin))
}

# Tests that break processes and servers, and those that measure, need the machine for themselves, and their time limits mean
# nothing under the race detector. The whole of them is `make test-long`.
alone='/internal/(chaos|bench|crashwalk|e2e)$'

# shellcheck disable=SC2046,SC2086 # flags and packages are meant to be split
suite() { CGO_ENABLED=1 go test -race -timeout 30m ${GOTESTFLAGS:-} $(go list ./... | grep -vE "$alone"); }
# shellcheck disable=SC2086
kills() { go test -p 1 -timeout 20m -run 'KillRounds|TwoProcesses' ${GOTESTFLAGS:-} ./internal/chaos; }

# beside DIR: compiles another module of this repository, tests included, without running them.
beside() { (cd "$1" && go build ./... && go vet ./...); }

step setup scripts/setup.sh
step build go build ./...
step vet go vet ./...
step "vet (long)" go vet -tags long ./...
step "test -race" suite
step "kill -9 rounds" kills
if [ -d examples ]; then
	step examples go test -timeout 10m ./examples/...
fi
for module in bench tools; do
	if [ -f "$module/go.mod" ]; then
		step "compile $module" beside "$module"
	fi
done
printf '\nall green, %d s\n' "$SECONDS"
