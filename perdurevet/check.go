package perdurevet

import (
	"go/token"
	"reflect"

	"golang.org/x/tools/go/analysis"
)

// check is the name of a check. Its analyzer and its flag have the same name, and allow comments
// use it.
type check string

// The checks.
const (
	clock      check = "clock"
	random     check = "random"
	goroutine  check = "goroutine"
	channel    check = "channel"
	block      check = "block"
	effect     check = "effect"
	context    check = "context"
	maporder   check = "maporder"
	state      check = "state"
	captured   check = "captured"
	nested     check = "nested"
	outerctx   check = "outerctx"
	escape     check = "escape"
	client     check = "client"
	stepkey    check = "stepkey"
	unchecked  check = "unchecked"
	continueas check = "continueas"
	directcall check = "directcall"
	deferred   check = "deferred"
	pool       check = "pool"
	constname  check = "constname"
	allow      check = "allow"
)

// checks describes each check. The order is the same as in docs/vet.md.
var checks = []struct {
	name check
	doc  string
}{
	{clock, "report uses of the system clock in workflow code; use ctx.Now, ctx.Sleep and ctx.Timer"},
	{random, "report random values in workflow code; use ctx.Rand and ctx.UUID"},
	{goroutine, "report goroutines in workflow code; use perdure.Go"},
	{channel, "report channels in workflow code; use futures and signals"},
	{block, "report workflow code that blocks outside the scheduler, or holds a mutex over a durable call"},
	{effect, "report input, output and the environment in workflow code; use a step"},
	{context, "report a context.Context in workflow code; move calls that need one into a step"},
	{maporder, "report iteration over a map whose order reaches durable calls or results"},
	{state, "report state outside the journal: changing package variables, fields and captured variables"},
	{captured, "report a step or query that assigns to a variable of its workflow"},
	{nested, "report a durable call inside a step"},
	{outerctx, "report a coroutine, section or clean-up that uses the context of the function around it"},
	{escape, "report a workflow context or a future kept in a field, a channel or a package variable"},
	{client, "report an App or a Client used by workflow code or by an entity"},
	{stepkey, "report perdure.Do in a loop without StepKey"},
	{unchecked, "report durable calls whose error, or whose future, is dropped"},
	{continueas, "report a dropped ContinueAsNew, and ContinueAsNew of another workflow"},
	{directcall, "report direct calls of the code of a workflow or an activity"},
	{deferred, "report plain defers with durable calls, log lines or other effects, which run on every unload"},
	{pool, "report a pool or a commit inside a transactional activity"},
	{constname, "report computed names of definitions and steps"},
	{allow, "report allow comments without a reason or without effect"},
}

// Analyzers returns one analyzer per check.
func Analyzers() []*analysis.Analyzer {
	all := make([]*analysis.Analyzer, 0, len(checks))
	for _, c := range checks {
		all = append(all, &analysis.Analyzer{
			Name:       string(c.name),
			Doc:        c.doc,
			URL:        "https://github.com/perdure/perdure/blob/main/docs/vet.md#" + string(c.name),
			Requires:   []*analysis.Analyzer{index},
			ResultType: reflect.TypeFor[struct{}](),
			Run: func(pass *analysis.Pass) (any, error) {
				for _, f := range pass.ResultOf[index].(findings)[c.name] {
					pass.Report(analysis.Diagnostic{Pos: f.pos, End: f.end, Category: string(c.name), Message: f.text + " [" + string(c.name) + "]"})
				}
				return struct{}{}, nil
			},
		})
	}

	return all
}

// isCheck reports whether a word is the name of a check.
func isCheck(word string) bool {
	for _, c := range checks {
		if string(c.name) == word {
			return true
		}
	}
	return false
}

// findings are the findings of the index, by check.
type findings map[check][]finding

// finding is one mistake.
type finding struct {
	pos, end token.Pos
	text     string
}

// index does the work of all checks. The analyzers only report its findings.
var index = &analysis.Analyzer{
	Name:       "perdureindex",
	Doc:        "determine the role of each function in a package and what it reaches",
	Run:        runIndex,
	ResultType: reflect.TypeFor[findings](),
	FactTypes:  []analysis.Fact{new(funcFact), new(varFact)},
}
