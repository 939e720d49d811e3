// Package archtest is the architecture as a test: who may import whom, which code is pure, what is
// documented, how long a file may be, and what the public packages export.
//
// The table of rooms is in rooms.go; docs/architecture.md explains it. The checks parse the module
// and never type-check it, so that they are fast and say something useful also while a package does
// not compile; a file that cannot be parsed is the compiler's business and is judged by what could
// be read of it.
//
// The exported surface of the public packages is kept in testdata/surface, so that its growth is a
// reviewed diff:
//
//	go test ./internal/archtest -update
//
// The invariants of the engine and the tests that fail when one breaks are in
// testdata/invariants.txt: whoever removes or renames such a test changes that table, and whoever
// finds an invariant without one writes it.
package archtest
