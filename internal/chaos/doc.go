// Package chaos holds tests that break real things: processes are killed and stopped, PostgreSQL is
// restarted, replies are lost. After each of them, the same workload must have ended as if nothing
// had happened: nothing lost, nothing recorded twice, nothing stuck.
package chaos
