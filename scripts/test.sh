#!/usr/bin/env bash
# The whole fast suite, from a fresh clone: installs what is missing, builds, tests with the race detector and without,
# breaks processes and servers, and checks the examples. `.ci/run` adds what reads code only: vet, lint, other modules.
#
#   scripts/test.sh            everything
#   GOTESTFLAGS=-v …           further flags for `go test`
#
# Needs no running database: the tests start private PostgreSQL servers (internal/pgtest).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# If another user owns the clone (a container, CI), git refuses to work, and go cannot stamp binaries.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"
# Compilers and tests collect garbage less often and use more memory.
export GOGC="${GOGC:-400}"
# A program with the race detector sleeps for a second before it exits, so that others may finish their reports; a tenth will do.
export GORACE="atexit_sleep_ms=100${GORACE:+ $GORACE}"

remove=() # directories that go when the script ends
trap '[ "${#remove[@]}" -eq 0 ] || rm -rf -- "${remove[@]}"' EXIT

# Servers and files of tests live for seconds, and there are thousands: in memory, where that has room and programs may be run.
scratch=/dev/shm
if [ -z "${TMPDIR:-}" ] && [ -d "$scratch" ] && [ "$(df --output=avail -m "$scratch" 2>/dev/null | tail -n 1)" -ge 4096 ] 2>/dev/null; then
	scratch=$(mktemp -d "$scratch/perdure-test.XXXXXX")
	remove+=("$scratch")
	chmod 755 "$scratch" # the server's user must reach its directories
	printf '#!/bin/sh\n' >"$scratch/runs" && chmod +x "$scratch/runs"
	if "$scratch/runs" 2>/dev/null; then
		export TMPDIR=$scratch
	fi
fi

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

# Every package runs in one of these ways; one that is not named here runs with the race detector, in short mode.
#
# Packages in which nothing is concurrent, neither code nor tests (internal/archtest checks the state machines), and
# those that read programs, run without the detector, and in full.
plain='/(internal/(archtest|cadence|cluster|core(/.*)?|engine/(gate|lane|ledger|loan|queue)|history|model|query)|perdurevet|cmd/perdurevet)$'
# Tests that do less in short mode (random inputs, the conformance of a store, damaged files, seeds of the simulator) run a second time, without
# the detector, and in full.
both='/internal/(replay|sim|store/(memory|faultstore|sqlite))$'
# Tests that start processes, break servers, or measure run without the detector, because it makes them too slow for
# their time limits.
heavy='/internal/(chaos|cli|crashwalk|e2e|txtest)$'
# internal/bench measures, and is a part of `make test-long`.
long='/internal/bench$'

# The suites of apps run a second time, over connections (internal/dialtest): that of the root, and parts of the end-to-end
# and transaction suites. `make test-dial` runs all of them, and the examples.

# tested ARGS…: runs `go test` with them. Prints a line per package and what failed.
tally=$(mktemp -d)
remove+=("$tally")
results=$tally/results
# shellcheck disable=SC2086 # flags are meant to be split
tested() { go test -json -timeout 20m ${GOTESTFLAGS:-} "$@" | "$tally/tally" -record "$results"; }

packages() { go list ./... | grep -vE "$long" | grep "$@"; }

# SQLite is C that was translated to Go. Under the detector it takes eight times as long, and what would be found in it is no race of
# ours: a connection is never shared. The packages that call it are watched as everything else is.
# shellcheck disable=SC2046,SC2086 # flags and packages are meant to be split
race() {
	CGO_ENABLED=1 PERDURE_TEST_DIAL=also tested -race -short -parallel 4 -gcflags='github.com/ncruces/go-sqlite3-wasm/...=-race=false' $(packages -vE "$plain|$heavy")
}
# shellcheck disable=SC2046,SC2086
whole() {
	tested $(packages -E "$plain|$both") && tested -run 'WithoutPreparedStatements|AYearOfNights' ./internal/store/postgres ./perduretest
}
# shellcheck disable=SC2046,SC2086
proofs() { PERDURE_TEST_DIAL=also tested -p 3 -parallel 6 $(packages -E "$heavy"); } # most of them wait: for leases, servers, processes

step setup scripts/setup.sh
# What has no test of its own; everything else is compiled, and examples are linked, with their tests.
step build go build -o /dev/null ./cmd/...
go build -o "$tally/tally" ./scripts/tally
step "test -race" race
step "test, whole" whole
step "crash walk, end to end, chaos" proofs
step "first five minutes" env SLEEP=3 scripts/five-minutes.sh
totals=$("$tally/tally" -sum "$results")
printf '\n%s\n' "$(head -n -1 <<<"$totals")"
printf 'all green: %s, %d s\n' "$(tail -n 1 <<<"$totals")" "$SECONDS"
