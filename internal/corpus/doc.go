// Package corpus holds recorded histories, and a test that replays all of them with today's code. A
// change of the SDK, of the identities of steps, of the order in which events are fed or of the
// seeds of random numbers that would block executions which are running out there fails here first.
//
// testdata/v1, v2, … are generations. What was recorded is never changed and never removed: it
// stands for what users have in their stores. The sums beside the files notice it if somebody does.
//
// To add something (a new kind of event, a new call of the SDK):
//
//  1. Add a workflow, or a branch behind ctx.Version, to workflows_test.go. Workflows that are
//     recorded keep replaying what is recorded.
//  2. Have the recorder in record_test.go drive it.
//  3. After a release, begin a new generation: raise the constant. Before, the files of the last
//     one may be recorded again.
//  4. go test ./internal/corpus -run TestRecord -update writes the files that are missing.
//
// A kind of event that no recorded history has fails the test, too.
package corpus
