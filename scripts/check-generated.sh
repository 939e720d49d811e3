#!/usr/bin/env bash
# Fails when committed generated code differs from what its generators produce now.
#
# It compares the files before and after `go generate`, and not with the last commit. So uncommitted
# work does not change the result. The regenerated files stay in place: review and commit them.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Checksums of every file that is or could be committed.
snapshot() {
	git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' file; do
			if [ -f "$file" ]; then printf '%s\0' "$file"; fi
		done | sort -zu | xargs -0 -r sha256sum
}

before=$(mktemp)
after=$(mktemp)
trap 'rm -f "$before" "$after"' EXIT

snapshot >"$before"
go generate ./...
snapshot >"$after"

if ! diff "$before" "$after" >/dev/null; then
	echo "generated code is stale; these files changed when \`go generate ./...\` ran:" >&2
	# Lines of diff are "< sum  file" and "> sum  file".
	diff "$before" "$after" | sed -n 's/^[<>] [0-9a-f]*  /  /p' | sort -u >&2
	exit 1
fi
