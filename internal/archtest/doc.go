// Package archtest is the architecture as a test: which package may import which, which code is
// pure, what is documented, how long a file may be, what the public packages export, and how the
// prose of comments and pages reads.
//
// The table of rooms is in rooms.go; docs/architecture.md explains it. The checks parse the module
// and never type-check it. So they are fast and work while a package does not compile. If a file
// cannot be parsed, the compiler reports it, and the checks use the part that was parsed.
//
// The exported surface of the public packages is kept in testdata/surface, so that its growth is a
// reviewed diff:
//
//	go test ./internal/archtest -update
//
// The invariants of the engine and the tests that fail when one breaks are in
// testdata/invariants.txt. If you remove or rename such a test, change that table. If you find an
// invariant without a test, write one.
//
// The rules of prose are in docs/prose.md and measured by prose.go; testdata/prose.txt lists what
// is still tolerated. The glossary of docs/architecture.md is compared with the exported names by
// glossary.go; testdata/glossary.txt lists the names that are still tolerated. Both lists only
// shrink.
package archtest
