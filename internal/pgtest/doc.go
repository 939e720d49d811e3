// Package pgtest gives tests a real PostgreSQL.
//
// Most tests need one line, which yields the URL of a fresh, empty database that is dropped when
// the test ends:
//
//	url := pgtest.URL(t)
//
// Tests that want the same tables share a [Template], which is filled once and copied.
//
// Tests that stop, restart or kill the server, or need other settings, start one of their own:
//
//	pg := pgtest.Start(t, pgtest.Options{Fsync: true})
//	url := pg.NewDatabase(t)
//	err := pg.Restart(ctx, pgtest.Immediate)
//
// A missing PostgreSQL fails the test and says what to install; nothing is ever skipped.
// $PERDURE_TEST_POSTGRES, the URL of an existing server whose role may create databases, replaces
// the server behind [URL] (not those of [Start]). $PERDURE_TEST_PGBIN names the directory of the
// server binaries when they are in an unusual place.
//
// # One server per test process
//
// `go test ./...` runs each package as a process of its own. All of them could share one server,
// with a lock file, a state file, and a reference count that survives kill -9; instead, each
// process starts its own at the first use. An unpacked template directory makes that cost 0.3 s,
// nothing has to be agreed between processes, and one package cannot disturb another, fill its
// disk, use up its connections or read its statistics.
//
// # Nothing stays behind
//
// The server dies with the test process, however that ends: the kernel sends it SIGQUIT (parent
// death signal, Linux). A shell that waits for the end of a pipe, whose other end only the test
// process holds, then removes the data directory. Should the shell be killed as well, the next run
// removes the directory, because nobody holds its lock any more; and a server whose directory is
// gone stops by itself within a minute. Only the template stays, one file per PostgreSQL version in
// the temporary directory.
//
// # Root
//
// PostgreSQL refuses to run as root. When the tests do, it runs as user "postgres", which the
// Debian package creates.
//
// # Not for production code
//
// The package is for tests, benchmarks and the chaos harness. By default fsync is off, so that a
// crash of the machine (not: of a process) destroys the databases.
package pgtest
