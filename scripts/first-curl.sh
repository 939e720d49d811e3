#!/usr/bin/env bash
# Measures how long it takes from a binary to the result of the first workflow that curl starts. The
# script starts perdure dev with a worker, starts an execution over HTTP, waits for its result, and
# reads its history. After that, it stops perdure dev and checks that the worker ended by itself.
#
#   scripts/first-curl.sh
#   PERDURE_TEST_PROGRAMS=dir …    with the programs of this directory instead of new ones
#
# It fails if that takes longer than 60 s, without the time of the builds.
set -euo pipefail

max_seconds=60
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=$(mktemp -d)
server='' # process of perdure dev

say() { printf 'first curl: %s\n' "$*"; }
die() {
	say "$*" >&2
	[ ! -f "$dir/log" ] || cat "$dir/log" >&2
	exit 1
}
stop() { [ -z "$server" ] || { kill -INT "$server" && wait "$server"; } 2>/dev/null || true; }
cleanup() {
	stop
	rm -rf "$dir"
}
trap cleanup EXIT

programs=${PERDURE_TEST_PROGRAMS:-}
if [ -z "$programs" ]; then
	programs=$dir
	(cd "$checkout" && go build -o "$dir/" ./cmd/perdure ./examples/remote/worker)
fi
SECONDS=0
: >"$dir/log"
(cd "$dir" && exec "$programs/perdure" dev --listen 127.0.0.1:0 -- "$programs/worker") >"$dir/log" 2>&1 &
server=$!
until grep -q 'the worker is connected' "$dir/log"; do
	kill -0 "$server" 2>/dev/null || die 'perdure dev has ended'
	[ "$SECONDS" -lt "$max_seconds" ] || die 'the worker has not connected'
	sleep 0.1
done
url=$(grep -o 'http://[^ ]*/v1' "$dir/log" | head -n 1)
[ -n "$url" ] || die 'perdure dev does not say where the REST API is'

curl -sf "$url/executions" -H 'Content-Type: application/json' \
	-d '{"workflow": "checkout", "key": "1", "input": {"Customer": "ann", "Cents": 500}}' >"$dir/started" || die 'the start has failed'
curl -sf "$url/executions/checkout/1/result?wait=30s" >"$dir/result" || die 'there is no result'
grep -q '"output":"receipt of ann"' "$dir/result" || die "the result is $(cat "$dir/result")"
curl -sf "$url/executions/checkout/1/history" | grep -q '"kind":"closed"' || die 'the history has no end'
[ "$SECONDS" -le "$max_seconds" ] || die "it took $SECONDS s, at most $max_seconds are allowed"
took=$SECONDS
stop
server=''
! grep -q 'was killed' "$dir/log" || die 'the worker did not end when perdure dev was stopped'
say "from perdure dev to the result of the first workflow in $took s"
