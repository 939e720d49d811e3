// Package chaos has tests that break real things: they kill and stop processes, restart PostgreSQL
// and drop replies. After each test, the workload must have ended as if nothing had happened:
// nothing is lost, recorded twice or stuck.
//
// A test strikes processes: it injects faults into them. A victim is a process that a test may
// kill. Victims record what they do in a ledger, which is a file that outlives them, and the test
// compares the ledger with the store.
package chaos
