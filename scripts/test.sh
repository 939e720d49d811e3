#!/usr/bin/env bash
# Tests from a fresh clone: installs missing packages, builds, tests, and checks the examples.
# `.ci/run` runs all three kinds, and adds the checks that only read code: vet, lint, other modules.
#
#   scripts/test.sh            the fast suite, without the race detector
#   scripts/test.sh deep       the tests that take longer: they break processes and servers, run
#                              suites a second time over connections, fill tables, and simulate
#                              more seeds
#   scripts/test.sh race       the tests of concurrent packages with the race detector
#   GOTESTFLAGS=-v …           further flags for `go test`
#
# Needs no running database: the tests start private PostgreSQL servers (internal/pgtest).
set -euo pipefail

case "${1:-fast}" in
fast | deep | race) mode=${1:-fast} ;;
*)
	printf 'usage: scripts/test.sh [deep | race]\n' >&2
	exit 2
	;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# If another user owns the clone (a container, CI), git refuses to work, and go cannot stamp
# binaries.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"
# Compilers and tests collect garbage less often and use more memory.
export GOGC="${GOGC:-400}"
# A program with the race detector sleeps for a second before it exits, so that other goroutines can
# finish their reports. A tenth of a second is enough.
export GORACE="atexit_sleep_ms=100${GORACE:+ $GORACE}"

remove=()   # directories to remove when the script ends
background= # process group of the step that runs in the background
end() {
	[ -z "$background" ] || kill -- "-$background" 2>/dev/null || true
	[ "${#remove[@]}" -eq 0 ] || rm -rf -- "${remove[@]}"
}
trap end EXIT

# Tests start thousands of servers and files that live for seconds. The script puts them into memory
# if there is room and the file system allows programs to run.
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

# `go test` links a program for each of 130 packages, which is a fifth of the processor time of the
# suite. The script keeps these programs, so that the next run links only programs whose code has
# changed. They need 3 GB; if the disk has no room for them, each run links all of them.
programs=$PWD/.bin/tests
room() { [ "$(df --output=avail -m "$PWD" 2>/dev/null | tail -n 1)" -ge 8192 ] 2>/dev/null; }
room && mkdir -p "$programs" || programs=

# processor sets $used to the processor time of all commands so far, in seconds. Unlike the elapsed
# time, it does not include other programs on this machine.
processor() {
	local file=$tally/times.$BASHPID
	times >"$file" # in a pipe, `times` would run in another shell
	used=$(awk -F '[ms ]+' 'NR == 2 { printf "%d", 60 * ($1 + $3) + $2 + $4 }' "$file")
}

# step NAME COMMAND…: runs a step, prints its name and how long it took, and stops the script if the
# step fails.
step() {
	local name=$1 begin=$SECONDS before
	shift
	processor
	before=$used
	printf '\n==> %s\n' "$name"
	if ! "$@"; then
		printf '==> %s: FAILED after %d s\n' "$name" $((SECONDS - begin)) >&2
		exit 1
	fi
	processor
	printf '==> %s: ok, %d s, %d s of processor time\n' "$name" $((SECONDS - begin)) $((used - before))
}

# beside COMMAND…: starts a command with steps in the background. finish waits for its end, prints
# its output, and stops the script if a step has failed.
beside() {
	set -m # the command gets a process group, so that `end` can stop all its processes
	("$@") >"$tally/background" 2>&1 </dev/null &
	set +m
	background=$!
}
finish() {
	local status=0
	wait "$background" || status=$?
	background=
	cat "$tally/background"
	[ "$status" -eq 0 ] || exit "$status"
}

# The patterns below divide the packages.
#
# Packages without concurrency in code and tests (internal/archtest checks the state machines), and
# packages that read programs, run in full and never with the race detector. The same is true for
# the examples, because most of their time is linking, which takes twice as long with the detector.
# `make test-long` runs the examples with the detector.
plain='/(api/perdure/v1|examples/.*|internal/(api|apidocs|archtest|authz|cadence|cluster(/host)?|codec|core(/.*)?|corpus|deploy|diagnosis|dialtest|engine/(gate|lane|ledger|loan|queue|storeclock)|fault|history|model|mutants|query|schedule|sim(/.*)?|spelling|store|telemetry/tracing|tenanttest|wire|wrong)|payload/zstd|perdurevet|cmd/perdurevet|scripts/tally)$'
# Stores whose tests do less in short mode (the sequential groups of the conformance suite, damaged
# files) run in full without the detector, and in short mode with it.
both='/internal/store/(memory|faultstore|sqlite)$'
# Tests that start processes, break servers, or measure never run with the detector, because it
# makes them too slow for their time limits. They run in short mode.
heavy='/internal/(chaos|cli|crashwalk|e2e|txtest)$'
# The fast suite simulates the first seeds (internal/sim in short mode), and `deep` those that
# follow. Together they simulate as many seeds as `go test ./internal/sim` does: 20,000.
simulator='/internal/sim$'
first=2500
more=17500
# The fast suite leaves these packages out. scripts/sequential.txt lists single tests that it also
# leaves out.
deep='/internal/(chaos|crashwalk|txtest|store/partitioned)$'
# The tests of the stores in PostgreSQL. With the detector run the groups of the conformance suite
# in which calls overlap (storetest.Overlapping), and the tests that break connections and servers.
# Tests that measure skip themselves under the detector. `make test-long` runs all of them in both
# ways.
divided='/internal/store/(partitioned|postgres)$'
# internal/bench makes measurements, so only `make test-long` runs it.
long='/internal/bench$'
# All other packages run in short mode, with the detector and without it. Some of their tests take
# too long with the detector: scripts/sequential.txt lists them.
#
# listed PATTERN: prints a regular expression for the tests whose lines in that file match PATTERN.
# owners PATTERN: prints their packages.
listed() { grep -v '^#' scripts/sequential.txt | grep -E "$1" | awk '{ printf "%s%s", n++ ? "|" : "^(", $2 } END { print ")$" }'; }
owners() { grep -v '^#' scripts/sequential.txt | grep -E "$1" | awk -v m="$module" '{ print $1 == "." ? m : m "/" $1 }' | sort -u; }

# The suites of apps run a second time over connections (internal/dialtest), without the detector:
# the fast suite does this with the suite of the root package, and `deep` with the end-to-end and
# transaction suites. `make test-dial` runs them on all kinds of stores, and the examples. `make
# test-long` runs the suite of the root package over connections with the detector.

# tested NAME FLAGS… -- PACKAGES…: runs `go test`, and keeps the programs in a directory with the
# name. It prints a line per package, and the failures. `go test` runs without `go vet`, because
# `.ci/run` runs all checks of `go vet`.
#
# Flags of the tests themselves, which `go test` does not know, come after the packages.
#
# A directory can have only one program of each name. So if two packages have the same name
# (store/postgres and notify/postgres), the second package runs in a second round.
tally=$(mktemp -d)
remove+=("$tally")
results=$tally/results
tested() {
	local name=$1 flags=() keep=() these rest round
	shift
	while [ "$1" != -- ]; do
		flags+=("$1")
		shift
	done
	shift
	for ((round = 1; $# > 0; round++)); do
		these=("$@")
		rest=()
		if [ -n "$programs" ]; then
			keep=(-o "$programs/$name$round/" -ldflags='-s -w')
			mapfile -t these < <(printf '%s\n' "$@" | awk -F/ '!seen[$0]++ && !named[$NF]++')
			mapfile -t rest < <(printf '%s\n' "$@" | awk -F/ '!seen[$0]++ && named[$NF]++')
		fi
		# shellcheck disable=SC2086 # flags are meant to be split
		go test -vet=off -json -timeout 60m "${keep[@]}" ${GOTESTFLAGS:-} "${flags[@]}" "${these[@]}" | "$tally/tally" -record "$results" || return
		set -- "${rest[@]}"
	done
}

# packages GREP…: prints the packages with tests that grep selects. Packages without tests are
# compiled as parts of other packages, or by the step that builds the programs.
packages() {
	go list -f '{{ if or .TestGoFiles .XTestGoFiles }}{{ .ImportPath }}{{ end }}' ./... | grep -vE "^$|$long" | grep "$@"
}
module=$(go list -m)

# The SQLite driver is C code that was translated to Go. With the detector it is eight times as
# slow, and it cannot have a race that we cause, because our goroutines never share a connection.
# The detector still checks the packages that call the driver.
#
# The slowest packages spend most of their time waiting for servers. They come first, so that they
# wait while other packages are compiled. `go test` runs a package only once, even if it is named
# twice.
slowest="$module/internal/flovyn $module/internal/engine $module $module/internal/store/postgres"
# shellcheck disable=SC2046,SC2086 # packages are meant to be split
race() {
	CGO_ENABLED=1 tested race -race -short -parallel 4 -skip "$(listed '^[^ ]+ [^ ]+( short| deep)?$')" -gcflags='github.com/ncruces/go-sqlite3-wasm/...=-race=false' -- $slowest $(packages -vE "$plain|$heavy")
}

# The list is reversed, so that of the two packages with the name perdurevet the shorter one runs in
# the second round.
#
# The simulator uses most of the processor time. It uses a tenth less if the scheduler does not
# interrupt goroutines with signals (asyncpreemptoff).
# shellcheck disable=SC2046
whole() {
	GODEBUG=asyncpreemptoff=1 tested whole -short -- $(packages -E "$simulator") &&
		GODEBUG=asyncpreemptoff=1 tested whole -- $(packages -E "$plain|$both" | grep -vE "$simulator" | sort -r)
}
# shellcheck disable=SC2046
seeds() {
	GODEBUG=asyncpreemptoff=1 tested whole -run 'TestSeeds$' -- $(packages -E "$simulator") -seed=$((first + 1)) -seeds=$more
}
# shellcheck disable=SC2046
short() {
	tested short -short -p 3 -parallel 4 -skip "$(listed '')" -- $(packages -vE "$plain|$both|$heavy|$divided") &&
		tested short -p 3 -run "$(listed '^[^ ]+ [^ ]+( also)?$')" -- $(owners '^[^ ]+ [^ ]+( also)?$') &&
		tested short -short -p 3 -parallel 4 -run "$(listed ' short$')" -- $(owners ' short$' | grep -vE "$divided") &&
		PERDURE_TEST_DIAL=1 tested short -short -- "$module"
}
computing() {
	step "first five minutes" scripts/five-minutes.sh
	step "first workflow by curl" scripts/first-curl.sh
	step "test, whole" whole
}
# Most of these tests wait for leases, servers and processes, so more of them run at the same time.
# The longest packages start first, so that they do not run alone at the end. In short mode the
# crash walk skips some calls, and two tests of the end-to-end suite leave out a case that takes a
# minute; `make test-long` runs everything.
# shellcheck disable=SC2046
processes() {
	tested processes -short -p 3 -parallel 6 -skip "$(listed ' deep$')" -- "$module"/internal/{cli,e2e,store/postgres} $(packages -E "$heavy|$divided" | grep -vE "$deep" | sort -r)
}
# shellcheck disable=SC2046
deep() {
	tested processes -short -p 3 -parallel 6 -- "$module"/internal/chaos $(packages -E "$deep" | sort -r) &&
		tested processes -short -p 3 -parallel 6 -run "$(listed ' deep$')" -- $(owners ' deep$') &&
		PERDURE_TEST_DIAL=1 tested processes -short -p 3 -parallel 6 -- "$module"/internal/{e2e,txtest}
}

step setup scripts/setup.sh
# Tests and scripts start these programs.
export PERDURE_TEST_PROGRAMS=${programs:-$tally}/programs
step build go build -o "$PERDURE_TEST_PROGRAMS/" ./cmd/... ./examples/remote/worker ./examples/remote/client
go build -o "$tally/tally" ./scripts/tally
case $mode in
race) step "test -race" race ;;
deep)
	# The step in front mostly waits, and the seeds only compute.
	beside step "more seeds" seeds
	step "crash walk, chaos, transactions, connections" deep
	finish
	;;
fast)
	# Most of the work in the background is computing, and most of the other steps is waiting.
	beside computing
	step "processes and servers" processes
	step "test, short" short
	finish
	;;
esac
totals=$("$tally/tally" -sum "$results")
printf '\n%s\n' "$(head -n -1 <<<"$totals")"
processor
printf 'all green: %s, %d s, %d s of processor time\n' "$(tail -n 1 <<<"$totals")" "$SECONDS" "$used"
