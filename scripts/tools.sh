#!/usr/bin/env bash
# Installs the pinned development tools into .bin/ (ignored by git).
#
# The script skips a tool that is installed in the pinned version, so calling it again is cheap. The
# tools are not in go.mod, because their dependency graphs are huge, and go.mod should show what
# Perdure links. To change a version, change it in this file. Some newer releases cannot be
# installed: see the reasons next to the versions.
#
#   scripts/tools.sh                 everything
#   scripts/tools.sh gofumpt         only what is named
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# name|package|version
tools=(
	# v2.15.0 requires untagged commits of linters, which module proxies refuse.
	"golangci-lint|github.com/golangci/golangci-lint/v2/cmd/golangci-lint|v2.14.0"
	# golangci-lint can format too, but gofumpt builds in seconds, so `make fmt` starts faster.
	"gofumpt|mvdan.cc/gofumpt|v0.12.0"
	# scripts/clients.sh generates the Go client of the REST API with it.
	"oapi-codegen|github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen|v2.8.1"
)

bin=$PWD/.bin
mkdir -p "$bin"

# installed NAME: the module version that the binary was built from, or nothing.
installed() {
	[ -x "$bin/$1" ] || return 0
	go version -m "$bin/$1" 2>/dev/null | awk '$1 == "mod" { print $3 }'
}

wanted=("$@")
known=" $(printf '%s\n' "${tools[@]}" | cut -d'|' -f1 | tr '\n' ' ')"
for name in ${wanted[@]+"${wanted[@]}"}; do
	if [[ "$known" != *" $name "* ]]; then
		echo "tools: unknown tool '$name'; known:$known" >&2
		exit 2
	fi
done

for row in "${tools[@]}"; do
	IFS='|' read -r name package version <<<"$row"
	if [ "${#wanted[@]}" -gt 0 ] && [[ " ${wanted[*]} " != *" $name "* ]]; then
		continue
	fi
	if [ "$(installed "$name")" = "$version" ]; then
		continue
	fi
	echo "tools: installing $name $version (the first time takes minutes)"
	# CGO_ENABLED=0: no C compiler needed. The command sets GOFLAGS, so that flags of the caller do
	# not apply to these modules.
	GOBIN=$bin CGO_ENABLED=0 GOFLAGS=-buildvcs=false go install "$package@$version"
	if [ "$(installed "$name")" != "$version" ]; then
		echo "tools: $name reports version '$(installed "$name")' after installing $version" >&2
		exit 1
	fi
done
