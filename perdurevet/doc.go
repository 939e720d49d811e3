// Package perdurevet finds mistakes in programs that use Perdure. It finds mistakes that neither
// the compiler nor Open can detect: workflow code that behaves differently on replay, durable calls
// in places where the journal does not record them, state that no journal keeps. Each finding says
// what is wrong and what to write instead.
//
// Most people run the command:
//
//	go install github.com/perdure/perdure/cmd/perdurevet@latest
//	go vet -vettool=$(which perdurevet) ./...
//
// Analyzers returns the checks, so that other drivers of go/analysis can run them. The checks share
// one pass over a package: [index] determines the role of every function (code of a workflow, a
// step, an entity, or an ordinary function), what the function reaches, and its mistakes. Each
// analyzer then reports the findings of its check.
//
// The analysis sees all functions of the package. Through facts, which go/analysis passes from
// package to package, it also sees functions of other packages of the same module and of modules
// that import Perdure. For all other code, including the standard library, the analysis has a table
// (forbidden.go). The analysis does not follow calls through interfaces, nor calls of function
// values other than local closures. It reads source text and does not follow data. For example, it
// does not detect a map iteration that appends to a slice in another function, or a name that is
// computed three calls away.
//
// A comment with a reason silences a finding, see docs/vet.md:
//
//	//perdure:allow clock the time is only logged
package perdurevet
