#!/usr/bin/env bash
# Builds the static binaries of a release, with checksums and a bill of materials (CycloneDX) each.
#
#   scripts/release.sh DIR [os/arch …]
#
# Without targets it builds linux and darwin on amd64 and arm64. The same commit and the same Go
# version give the same bytes: with VERIFY=1 the script builds every binary a second time, from a
# copy of the sources in another directory and with an empty build cache, and compares.
set -euo pipefail

dir=${1:?usage: scripts/release.sh DIR [os/arch …]}
shift
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64)
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

# build SOURCES OS/ARCH FILE compiles one binary.
build() {
	(cd "$1" && CGO_ENABLED=0 GOOS=${2%/*} GOARCH=${2#*/} GOFLAGS= \
		go build -trimpath -buildvcs=false -ldflags='-s -w -buildid=' -o "$3" ./cmd/perdure)
}

# bill FILE prints the modules of a binary as a bill of materials.
bill() {
	go version -m "$1" | awk -F'\t' '
		BEGIN { printf "{\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.5\",\n  \"version\": 1,\n" }
		$2 == "mod" { printf "  \"metadata\": {\"component\": {\"type\": \"application\", \"name\": \"%s\", \"version\": \"%s\"}},\n  \"components\": [", $3, $4 }
		$2 == "dep" { printf "%s\n    {\"type\": \"library\", \"name\": \"%s\", \"version\": \"%s\", \"purl\": \"pkg:golang/%s@%s\"}", n++ ? "," : "", $3, $4, $3, $4 }
		END { printf "\n  ]\n}\n" }'
}

for target in "${targets[@]}"; do
	file=$dir/perdure-${target%/*}-${target#*/}
	build "$checkout" "$target" "$file"
	bill "$file" >"$file.cdx.json"
	printf 'release: built %s\n' "$file"
done

if [ -n "${VERIFY:-}" ]; then
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	mkdir "$copy/sources"
	(cd "$checkout" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - --ignore-failed-read) | tar -xf - -C "$copy/sources"
	# With the cache of the first build, the second one would only link.
	export GOCACHE=$copy/cache
	for target in "${targets[@]}"; do
		build "$copy/sources" "$target" "$copy/again"
		cmp "$copy/again" "$dir/perdure-${target%/*}-${target#*/}"
		printf 'release: %s is reproducible\n' "$target"
	done
fi

(cd "$dir" && sha256sum perdure-* | grep -v ' SHA256SUMS$' >SHA256SUMS)
printf 'release: %s\n' "$dir/SHA256SUMS"
