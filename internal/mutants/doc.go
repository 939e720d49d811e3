// Package mutants tests the tests: it adds known bugs to the code, one at a time, and checks that
// the test suite catches each of them.
//
// A mutant is a small textual change of one source file. `go test -overlay` compiles the changed
// file, so the source tree itself never changes. The tests of the mutant must fail. `make mutants`
// runs all mutants. The fast suite only checks that every change still applies, so that a change of
// the code cannot disable a mutant unnoticed.
package mutants
