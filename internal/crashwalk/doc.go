// Package crashwalk walks through every call that programs of the SDK make to their store, and lets
// each of them go wrong in every way: an error before or after it took effect, a process that dies
// before or after it, a commit that lands late, after the process has given up on it.
//
// A scenario is a set of definitions and a driver that uses the public SDK. It runs on the real
// engine and the memory store, in virtual time (testing/synctest), so that leases, back-offs and
// takeovers cost nothing. First it runs without a fault. Then it runs once for every call and every
// kind of fault, with that fault at that call. When the process dies, its wrapper of the store
// refuses every further call. A new process opens the same store and takes over when the lease has
// expired. Then the driver runs again: all its calls can be repeated.
//
// After each run the result must be the expected one, and the histories must have the same events
// as without a fault. No event may occur twice, nothing that was acknowledged may be missing,
// nothing may be left open, waiting or unread, and no goroutine may be left. A walk also fails if a
// fault did not happen, or if a kind of fault never did.
//
// To see one run again: go test ./internal/crashwalk -run 'CrashWalk/all/^child$' -walk.kind 'crash
// after' -walk.at 17 -walk.log -v
package crashwalk
