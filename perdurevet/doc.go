// Package perdurevet finds mistakes in programs that use Perdure which neither the compiler nor
// Open can see: workflow code that would not do the same on replay, durable calls where there is
// nobody to record them, state that no journal keeps. Each finding says what is wrong and what to
// write instead.
//
// Most people run the command:
//
//	go install github.com/perdure/perdure/cmd/perdurevet@latest
//	go vet -vettool=$(which perdurevet) ./...
//
// Analyzers returns the checks for other drivers. They share one pass over a package: [index] finds
// out what every function is for (code of a workflow, a step, an entity, or just a function), what
// it reaches, and what is wrong with it; an analyzer then reports the findings of its check.
//
// What is seen: functions of the package, and, by facts, those of other packages of the same module
// and of modules that import Perdure. For everything else, the standard library included, there is
// a table (forbidden.go). What is not seen: calls through interfaces, and function values other
// than local closures. The analysis is of source text, not of data flow: what a map iteration
// appends to a slice in another function, or a name that is computed three calls away, is not
// found.
//
// A finding is silenced by a comment with a reason, see docs/vet.md:
//
//	//perdure:allow clock the time is only logged
package perdurevet
