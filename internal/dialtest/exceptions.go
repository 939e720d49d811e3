package dialtest

// inbox is the reason for tests that use transactions in the database of the store.
const inbox = "a transaction in the database of the store writes to the inbox of the engine, and over a connection it needs an outbox"

// Exceptions are the tests of each suite that do not run over a connection, with the reason. A test
// of this package checks that they exist. A subtest has the name of its test, a slash, and its own
// name.
var Exceptions = map[string]map[string]string{
	"internal/e2e": {
		"TestActivityInAnotherProcess":   "each app has a server of its own here, a server keeps its shards whatever code its workers have, and the workers of a workflow must connect to the server that owns it",
		"TestCloseOnAFullDisk":           "Close of an app stops an embedded engine, whose store is full here; it does not stop a server",
		"TestHeapUnderHostileInput":      "it bounds the memory of an engine, and over a connection the process also has the buffers of client and server",
		"TestScheduleOfASecret":          sweep,
		"TestSweepKnowsTheUsersDatabase": sweep,
		"TestSweepOfPayloads":            sweep,
	},
	"internal/txtest": {
		"TestEnginesOwnDatabase": inbox,
		"TestPgxItself":          inbox,
	},
}

const sweep = "it removes blobs that nothing refers to, and only a program that has the store open can find these"

// parts are the tests of each suite that run over connections every time, as a regular expression.
// A suite without an entry runs all its tests. The parts cover every kind of request and every role
// of a worker. All other tests run with make test-dial.
var parts = map[string]string{
	"internal/e2e":    "^(TestScenarios|TestInlineGate|TestBadCalls|TestCloseWithCallers|TestTasks|TestTaskLogsAndStream|TestTaskStateOverAttempts|TestWrongTypes)$",
	"internal/txtest": "^(TestTransfer|TestOutageOfTheEngine|TestDeadLetters|TestRequestIDsOfTransactions|TestCommitAndRollback)$",
}
