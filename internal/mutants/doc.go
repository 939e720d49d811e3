// Package mutants plants known bugs, one at a time, and demands that the suite catches each of
// them: it tests the tests.
//
// A mutant is a small change of one source file, as text. It is compiled in with `go test
// -overlay`, so the tree itself is never touched, and the tests that are meant to notice it must
// fail. `make mutants` runs all of them; the fast suite only checks that every change still
// applies, so that a mutant cannot rot in silence.
package mutants
