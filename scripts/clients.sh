#!/usr/bin/env bash
# The clients that are generated from the OpenAPI document: clients/go and clients/typescript.
#
#   scripts/clients.sh             compile them, validate the documents, and talk to a real server
#   scripts/clients.sh generate    write their generated code again
#   scripts/clients.sh fresh       fail if the committed code is not what the generators write now
#
# The TypeScript client needs node, npm and its packages. Without them, the script prints a message
# and leaves the TypeScript client out.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"
documents=internal/restapi/testdata

say() { printf 'clients: %s\n' "$*"; }
die() {
	say "$*" >&2
	exit 1
}

dir=$(mktemp -d)
server='' # process of perdure dev
cleanup() {
	[ -z "$server" ] || { kill -INT "$server" && wait "$server"; } 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT

have_node() { command -v node >/dev/null && command -v npm >/dev/null; }

# packages: installs the packages of clients/typescript/package-lock.json, unless they are
# installed. It fails if node or npm is missing, or if npm cannot get the packages.
packages() {
	have_node || { say 'node and npm are not installed: the TypeScript client is left out' && return 1; }
	local lock
	lock=$(sha256sum clients/typescript/package-lock.json)
	if grep -q '"resolved"' clients/typescript/package-lock.json; then
		die 'clients/typescript/package-lock.json names the hosts of packages: remove its "resolved" lines'
	fi
	if [ "$(cat clients/typescript/node_modules/.lock 2>/dev/null)" != "$lock" ]; then
		(cd clients/typescript && npm ci --no-audit --no-fund --loglevel=error) ||
			{ say 'npm cannot install the packages: the TypeScript client is left out' && return 1; }
		printf '%s\n' "$lock" >clients/typescript/node_modules/.lock
	fi
}

# generate GO TYPESCRIPT: writes the generated files to these names. The generator for Go reads
# version 3.0 of OpenAPI, and the generator for TypeScript reads version 3.1.
generate() {
	scripts/tools.sh oapi-codegen
	.bin/oapi-codegen -config clients/go/oapi-codegen.yaml -o "$1" "$documents/openapi-3.0.json"
	if packages; then
		clients/typescript/node_modules/.bin/openapi-typescript "$documents/openapi.json" --output "$2" >/dev/null
	elif [ "$2" != clients/typescript/src/schema.ts ]; then
		cp clients/typescript/src/schema.ts "$2"
	fi
}

case "${1:-test}" in
generate)
	generate clients/go/client.gen.go clients/typescript/src/schema.ts
	;;
fresh)
	generate "$dir/client.gen.go" "$dir/schema.ts"
	cmp "$dir/client.gen.go" clients/go/client.gen.go && cmp "$dir/schema.ts" clients/typescript/src/schema.ts ||
		die 'the generated code is stale: run scripts/clients.sh generate'
	;;
test)
	go build -o "$dir/perdure" ./cmd/perdure
	: >"$dir/log"
	(cd "$dir" && exec ./perdure dev --listen 127.0.0.1:0) >"$dir/log" 2>&1 &
	server=$!
	for ((i = 0; i < 600; i++)); do
		url=$(grep -o 'http://[^ ]*/v1' "$dir/log" | head -n 1) && break
		kill -0 "$server" 2>/dev/null || die "perdure dev has ended: $(cat "$dir/log")"
		sleep 0.1
	done
	[ -n "$url" ] || die "perdure dev does not say where the REST API is: $(cat "$dir/log")"
	export PERDURE_URL=${url%/v1}

	(cd clients/go && go vet ./... && go test -count 1 ./...)
	if packages; then
		(cd clients/typescript && node_modules/.bin/tsc && npm test --silent)
	fi
	;;
*)
	die "unknown argument '$1'"
	;;
esac
