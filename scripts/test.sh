#!/usr/bin/env bash
# The whole fast suite, from a fresh clone: installs what is missing, builds, vets, tests with the race detector and without,
# breaks processes and servers, checks the examples, and compiles the modules beside ours.
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

# Tests that break processes and servers, and those that measure, run one package at a time, and without the race detector, under which
# their time limits mean nothing. Those of the command line begin a process per line, which takes a second each with it.
alone='/internal/(chaos|bench|cli|crashwalk|e2e|txtest)$'
# What holds back in short mode (random inputs, exhaustive walks, damaged files, seeds of the simulator, a command that is built), and the
# command line.
random='/(internal/(core|cli|cluster|engine/lane|model|replay|sim|store/(memory|faultstore|sqlite))|cmd/perdurevet)$'

# shellcheck disable=SC2046,SC2086 # flags and packages are meant to be split
race() { CGO_ENABLED=1 go test -race -short -timeout 20m ${GOTESTFLAGS:-} $(go list ./... | grep -vE "$alone"); }
# shellcheck disable=SC2046,SC2086
whole() {
	go test -timeout 20m ${GOTESTFLAGS:-} $(go list ./... | grep -E "$random") &&
		go test -timeout 20m -run WithoutPreparedStatements ${GOTESTFLAGS:-} ./internal/store/postgres
}
# shellcheck disable=SC2086
proofs() { go test -p 1 -timeout 20m ${GOTESTFLAGS:-} ./internal/crashwalk ./internal/e2e ./internal/chaos ./internal/txtest; }

# beside DIR: compiles another module of this repository, tests included, without running them.
beside() { (cd "$1" && go build -o /dev/null ./... && go vet ./...); }

step setup scripts/setup.sh
step build go build ./...
step vet go vet ./...
step "vet (long)" go vet -tags long ./...
step "test -race" race
step "test, whole" whole
step "crash walk, end to end, chaos" proofs
if [ -d examples ]; then
	step examples go test -timeout 10m ./examples/...
fi
step "first five minutes" env SLEEP=3 scripts/five-minutes.sh
for module in bench tools; do
	if [ -f "$module/go.mod" ]; then
		step "compile $module" beside "$module"
	fi
done
printf '\nall green, %d s\n' "$SECONDS"
