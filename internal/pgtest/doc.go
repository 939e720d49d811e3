// Package pgtest provides tests with a real PostgreSQL.
//
// Most tests need one line, which returns the URL of a new, empty database. The database is dropped
// when the test ends:
//
//	url := pgtest.URL(t)
//
// Tests that want the same tables share a [Template]: a database that is filled once and copied for
// each test.
//
// Tests that stop, restart or kill the server, or need other settings, start their own:
//
//	pg := pgtest.Start(t, pgtest.Options{Fsync: true})
//	url := pg.NewDatabase(t)
//	err := pg.Restart(ctx, pgtest.Immediate)
//
// If PostgreSQL is missing, the test fails and says what to install. Tests are never skipped.
// $PERDURE_TEST_POSTGRES can have the URL of an existing server, with a role that may create
// databases. [URL] uses that server instead of its own; [Start] does not. $PERDURE_TEST_PGBIN names
// the directory of the server binaries if they are in an unusual place.
//
// # One server per test process
//
// `go test ./...` runs each package as its own process. Each process starts its own server at the
// first use. That takes only 0.3 s, because the package unpacks a prepared data directory instead
// of calling initdb. Processes need not coordinate, and one package cannot disturb another, fill
// its disk, use up its connections or read its statistics. A shared server would need a lock file,
// a state file, and a reference count that survives kill -9.
//
// # Nothing stays behind
//
// The server ends with the test process, no matter how the process ends: on Linux the kernel sends
// the server SIGQUIT (the parent death signal). After that, a shell removes the data directory. The
// shell waits for the end of a pipe whose other end only the test process holds. If the shell is
// killed too, the next run of a test removes the directory: it sees that no process holds the lock
// of the directory. A server whose directory is gone stops within a minute. Only the template
// stays, one file per PostgreSQL version in the temporary directory.
//
// # Root
//
// PostgreSQL refuses to run as root. If the tests run as root, the server runs as user "postgres",
// which the Debian package creates.
//
// # Not for production code
//
// The package is for tests, benchmarks and the chaos harness. By default fsync is off, so a crash
// of the machine (but not of a process) destroys the databases.
package pgtest
