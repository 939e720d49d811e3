// Package corpus holds recorded histories, and a test that replays all of them with today's code. A
// change of the SDK, of the identities of steps, of the order in which code receives events, or of
// the seeds of random numbers may block executions in users' stores. Such a change fails this test
// first.
//
// testdata/v1, v2, … are generations. Files of a released generation are never changed and never
// removed, because users have histories like these in their stores. A file next to each generation,
// such as testdata/v1.sums, has the checksums of its files. A test uses them to detect a change.
//
// To add something (a new kind of event, a new call of the SDK):
//
//  1. Add a workflow, or a branch behind ctx.Version, to workflows_test.go. Recorded workflows must
//     keep replaying their histories.
//  2. Let the recorder in record_test.go run the new workflow or branch.
//  3. If the last generation has been released, start a new one: raise the constant generation in
//     record_test.go. Otherwise add to the last one. Its files may also be recorded again.
//  4. go test ./internal/corpus -run TestRecord -update writes the missing files.
//
// Another test, TestEveryKindIsRecorded, fails if no recorded history has an event of some kind. It
// does not look for EventStarted, EventClosed and EventNoted.
package corpus
