// Package crashwalk walks through the calls that programs of the SDK make to their store, and makes
// each call go wrong in many ways. For example, the call fails before or after it takes effect, the
// process dies before or after the call, or a commit lands after the process has given up on it.
// The list kinds in strike_test.go has all of them.
//
// A scenario is a set of definitions and a driver that uses the public SDK. The scenario runs on
// the real engine and the memory store, in virtual time (testing/synctest), so that leases,
// back-offs and takeovers cost nothing. First it runs without a fault. Then TestLongCrashWalk runs
// it once for every call and every kind of fault, with that fault at that call. TestCrashWalk
// leaves out some of the calls. When the process dies, its wrapper of the store refuses every
// further call. A new process opens the same store and takes over when the lease has expired. Then
// the driver runs again from its start, which is safe because every call of a driver can be
// repeated.
//
// After each run the scenario must have the expected result, and the histories must have the same
// events as without a fault. No event may occur twice, and no acknowledged event may be missing.
// Nothing may be left open, waiting or unread, and no goroutine may be left. A walk also fails if
// the planned fault of a run did not happen, or if a kind of fault never happened.
//
// To see one run again:
//
//	go test ./internal/crashwalk -run 'CrashWalk/all/^child$' \
//		-walk.kind 'crash after' -walk.at 17 -walk.log -v
package crashwalk
