#!/usr/bin/env bash
# Sends requests that schemathesis makes from the OpenAPI document to a new server, and compares
# every answer with the document: status, type, headers and JSON. A status of 500 or above fails, as
# does an answer that the document does not describe.
#
#   scripts/fuzz-rest.sh
#   EXAMPLES=300 …    more requests for each operation than 100
#
# Needs python3 with venv and pip.
set -euo pipefail

version=4.32.5
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=$(mktemp -d)
server='' # process of perdure dev

cleanup() {
	[ -z "$server" ] || { kill -INT "$server" && wait "$server"; } 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT

python3 -m venv "$dir/python"
"$dir/python/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version"
(cd "$checkout" && go build -buildvcs=false -o "$dir/perdure" ./cmd/perdure)

mkdir "$dir/store"
: >"$dir/log"
(cd "$dir/store" && exec "$dir/perdure" dev --listen 127.0.0.1:0) >"$dir/log" 2>&1 &
server=$!
until address=$(sed -n 's|.* at grpc://\([^;]*\);.*|\1|p' "$dir/log") && [ -n "$address" ]; do
	kill -0 "$server" 2>/dev/null || { cat "$dir/log" >&2 && exit 1; }
	sleep 0.1
done

# Four operations wait for the code of workflows and entities, which this server does not have, and
# three streams do not end. The tool cannot write the lines that an import reads. The tests of
# internal/restapi try all of these operations.
cd "$dir"
"$dir/python/bin/schemathesis" run "http://$address/v1/openapi.json" \
	--phases examples,coverage,fuzzing --mode all --max-examples "${EXAMPLES:-100}" --workers 2 --request-timeout 60 --continue-on-failure \
	--checks not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance \
	--exclude-operation-id call-entity --exclude-operation-id update-execution --exclude-operation-id await-execution \
	--exclude-operation-id query-execution --exclude-operation-id import-execution --exclude-operation-id-regex '^watch-'
kill -0 "$server" || { cat "$dir/log" >&2 && exit 1; }
