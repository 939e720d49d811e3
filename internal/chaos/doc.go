// Package chaos has tests that break real things: they kill and stop processes, restart PostgreSQL
// and drop replies. After each test, the workload must have ended as if nothing had happened:
// nothing is lost, recorded twice or stuck.
package chaos
