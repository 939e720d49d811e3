#!/usr/bin/env bash
# Installs packages of the distribution that the tests need. Does nothing if all are installed.
#
#   PostgreSQL server binaries   internal/pgtest starts its own private servers with them. This
#                                script neither creates nor starts the system cluster.
#   PgBouncer                    internal/pgtest starts its own in front of such a server. This
#                                script neither starts nor enables the system service.
#   a C compiler                 only the race detector needs it (Perdure builds without cgo).
#
# Go must be installed. The script works as root or with sudo, on Debian and its derivatives. On
# other systems it prints what to install by hand. It ignores $PERDURE_TEST_POSTGRES: tests that
# stop and kill their server always start their own.
set -euo pipefail

say() { printf 'setup: %s\n' "$*"; }
die() {
	printf 'setup: %s\n' "$*" >&2
	exit 1
}

command -v go >/dev/null || die "Go is not installed or not in PATH; go.mod names the version"

have_postgres() {
	# The same places in the same order as internal/pgtest.
	if [ -n "${PERDURE_TEST_PGBIN:-}" ]; then
		[ -x "$PERDURE_TEST_PGBIN/postgres" ] && [ -x "$PERDURE_TEST_PGBIN/initdb" ]
		return
	fi
	local dir
	for dir in /usr/lib/postgresql/*/bin; do
		if [ -x "$dir/postgres" ] && [ -x "$dir/initdb" ]; then
			return 0
		fi
	done
	command -v postgres >/dev/null && command -v initdb >/dev/null
}

have_pgbouncer() { command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]; }

have_compiler() {
	[ "$(CGO_ENABLED=1 go env CGO_ENABLED)" = 1 ] && command -v "$(go env CC | awk '{ print $1 }')" >/dev/null &&
		printf '#include <stdlib.h>\nint main(void) { return 0; }\n' |
		"$(go env CC | awk '{ print $1 }')" -x c -o /dev/null - 2>/dev/null
}

missing=()
have_postgres || missing+=(postgresql)
have_pgbouncer || missing+=(pgbouncer)
have_compiler || missing+=(gcc libc6-dev)

if [ "${#missing[@]}" -eq 0 ]; then
	exit 0
fi

command -v apt-get >/dev/null ||
	die "missing: ${missing[*]} (Debian package names), and there is no apt-get here; please install them"

as_root=()
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null || die "missing: ${missing[*]}; run this as root, or install sudo"
	as_root=(sudo)
fi
root() { ${as_root[@]+"${as_root[@]}"} "$@"; }

say "installing ${missing[*]}"

# By default, the server package creates and starts a cluster named "main". This file prevents that
# for this installation only. The script removes it again, so that later installations behave as
# documented.
no_cluster=/etc/postgresql-common/createcluster.d/perdure-setup.conf
# Packages ask policy-rc.d before they start a service; 101 means no. The script keeps a policy that
# already exists.
policy=/usr/sbin/policy-rc.d
our_policy=
cleanup() {
	root rm -f "$no_cluster"
	[ -z "$our_policy" ] || root rm -f "$policy"
}
trap cleanup EXIT
if [ ! -e "$policy" ]; then
	our_policy=1
	printf '#!/bin/sh\nexit 101\n' | root tee "$policy" >/dev/null
	root chmod 755 "$policy"
fi
root mkdir -p "$(dirname "$no_cluster")"
printf 'create_main_cluster = false\n' | root tee "$no_cluster" >/dev/null

root env DEBIAN_FRONTEND=noninteractive apt-get update -q
root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null

# The package enables its service for the next boot. Without systemd there is nothing to disable.
case " ${missing[*]} " in
*" pgbouncer "*) root systemctl disable --quiet pgbouncer 2>/dev/null || true ;;
esac

have_pgbouncer || die "pgbouncer is still missing after installing ${missing[*]}"
have_postgres || die "PostgreSQL server binaries are still missing after installing ${missing[*]}"
have_compiler || die "a working C compiler is still missing after installing ${missing[*]}"
say "done"
