// Package archtest is the architecture as a test: which package may import which, which code is
// pure, what is documented, how long a file may be, what the public packages export, and how the
// prose of comments and pages reads.
//
// The table of rooms is in rooms.go; docs/architecture.md explains it. The checks parse the module
// and never type-check it. So they are fast and work while a package does not compile. If a file
// cannot be parsed, the compiler reports it, and the checks use the part that was parsed.
//
// The directory testdata/surface has the exported surface of the public packages, so that every
// change of the surface is in a reviewed diff:
//
//	go test ./internal/archtest -update
//
// The invariants of the engine and the tests that fail when one breaks are in
// testdata/invariants.txt. If you remove or rename such a test, change that table. If you find an
// invariant without a test, write one.
//
// The rules of prose are in docs/prose.md, and prose.go measures them; testdata/prose.txt lists the
// exceptions. glossary.go compares the exported names with the glossary in docs/architecture.md;
// testdata/glossary.txt lists the exceptions. Both lists only shrink.
package archtest
