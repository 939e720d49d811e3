// Package corpus holds recorded histories, and a test that replays all of them with today's code. A
// change of the SDK, of the identities of steps, of the order in which code receives events, or of
// the seeds of random numbers may block executions in users' stores. Such a change fails this test
// first.
//
// testdata/v1, v2, … are generations. Files of a released generation are never changed and never
// removed, because users have histories like these in their stores. The checksums next to the files
// detect a change.
//
// To add something (a new kind of event, a new call of the SDK):
//
//  1. Add a workflow, or a branch behind ctx.Version, to workflows_test.go. Recorded workflows must
//     keep replaying their histories.
//  2. Let the recorder in record_test.go run the new workflow or branch.
//  3. After a release, start a new generation: raise the constant generation in record_test.go.
//     Before a release, the files of the last generation may be recorded again.
//  4. go test ./internal/corpus -run TestRecord -update writes the missing files.
//
// The test also fails for a kind of event that no recorded history has.
package corpus
