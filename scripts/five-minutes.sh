#!/usr/bin/env bash
# Measures the first five minutes of a user: follows the README in an empty directory. It writes the
# one file, runs the two commands, kills the program with kill -9 while it sleeps, runs the second
# command again, and checks that the program continued.
#
#   scripts/five-minutes.sh           with the caches of this machine
#   scripts/five-minutes.sh --cold    with an empty module cache and an empty build cache: Go
#                                     downloads and compiles everything
#   SLEEP=3 …                         hello sleeps for 3 seconds instead of 10
#   PERDURE_TEST_PROGRAMS=dir …       with the perdure of this directory instead of a new one
#
# It fails if the file has more than 20 non-blank lines, or if everything together takes longer than
# five minutes.
#
# The module is not published yet, so between the two commands the script replaces it by this
# checkout. The script does not count that line as a command, because users will not have to type
# it. Go fetches the dependencies as usual.
set -euo pipefail

max_lines=20
max_seconds=300
first='go mod init hello'
second='go run -mod=mod .'

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=$(mktemp -d)
hello='' # process group of the program that runs

say() { printf 'five minutes: %s\n' "$*"; }
die() {
	say "$*" >&2
	exit 1
}
cleanup() {
	[ -z "$hello" ] || kill -9 -- "-$hello" 2>/dev/null || true
	chmod -R u+w "$dir" # the module cache is read-only
	rm -rf "$dir"
}
trap cleanup EXIT

readme=$checkout/README.md
for command in "$first" "$second"; do
	grep -qxF "    $command" "$readme" || die "README.md does not show the command: $command"
done

project=$dir/hello
mkdir "$project"
awk '/^```go$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' "$readme" >"$project/main.go"
lines=$(grep -c '[^[:space:]]' "$project/main.go")
[ "$lines" -gt 5 ] || die "README.md has no program"
[ "$lines" -le "$max_lines" ] || die "the program has $lines lines that are not blank, at most $max_lines are allowed"
if [ -n "${SLEEP:-}" ]; then
	grep -q '10 \* time.Second' "$project/main.go" || die "the program no longer sleeps for 10 * time.Second"
	sed -i "s/10 \* time.Second/$SLEEP * time.Second/" "$project/main.go"
fi

# The command line comes from the checkout and uses the caches of this machine, so that the script
# does not measure its build.
perdure=("${PERDURE_TEST_PROGRAMS:-}/perdure")
[ -n "${PERDURE_TEST_PROGRAMS:-}" ] || perdure=(go run ./cmd/perdure)
history() { (cd "$checkout" && "${perdure[@]}" workflow show --store "file:$project/perdure.db" greet/hello-1); }
GOCACHE=$(go env GOCACHE) GOMODCACHE=$(go env GOMODCACHE)
if [ "${1:-}" = --cold ]; then
	fresh=(env "GOCACHE=$dir/cache" "GOMODCACHE=$dir/mod")
	say "with empty caches"
else
	fresh=(env "GOCACHE=$GOCACHE" "GOMODCACHE=$GOMODCACHE")
fi

# A shell with job control gives each background command its own process group, so that kill reaches
# the program that go runs.
set -m
cd "$project"
begin=$SECONDS

# shellcheck disable=SC2086 # the commands are meant to be split
"${fresh[@]}" $first
go mod edit -replace "github.com/perdure/perdure=$checkout" # see above

# shellcheck disable=SC2086
"${fresh[@]}" $second >out 2>err &
hello=$!
until grep -aqs compose perdure.db perdure.db-wal; do # the step is durable; now it sleeps
	kill -0 "$hello" 2>/dev/null || { cat err >&2; die "the program ended before it slept"; }
	[ $((SECONDS - begin)) -le "$max_seconds" ] || die "after $max_seconds s the program does not sleep yet"
	sleep 0.1
done
kill -9 -- "-$hello"
killed=$(date -u '+%F %T.%3N')
wait "$hello" 2>/dev/null || true
hello=''
[ ! -s out ] || die "the program had ended when it was killed; it printed: $(cat out)"
say "killed after $((SECONDS - begin)) s, while it slept"

# shellcheck disable=SC2086
answer=$("${fresh[@]}" $second 2>err) || { cat err >&2; die "the second start failed"; }
took=$((SECONDS - begin))
[ "$answer" = "Hello World <nil>" ] || die "after the second start it printed: $answer"

story=$(history) || die "the history cannot be read"
[ "$(grep -c step_completed <<<"$story")" = 1 ] || die "the step was done again:
$story"
composed=$(awk '/step_completed/ { print $2, $3 }' <<<"$story")
[[ "$composed" < "$killed" ]] || die "the step was done at $composed, after the kill at $killed"

say "2 commands, 1 file, $lines lines, $took s; it went on after kill -9"
[ "$took" -le "$max_seconds" ] || die "at most $max_seconds s are allowed"
