package perdurevet

import (
	"go/token"
	"reflect"

	"golang.org/x/tools/go/analysis"
)

// check is the name of one thing that is looked for. It is the name of the analyzer, of its flag,
// and what an allow comment says.
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

// checks says what each of them finds. The order is that of docs/vet.md.
var checks = []struct {
	name check
	doc  string
}{
	{clock, "report the system clock in workflow code, where ctx.Now, ctx.Sleep and ctx.Timer are meant"},
	{random, "report randomness in workflow code, where ctx.Rand and ctx.UUID are meant"},
	{goroutine, "report goroutines in workflow code, where perdure.Go is meant"},
	{channel, "report channels in workflow code, where futures and signals are meant"},
	{block, "report workflow code that blocks outside the scheduler, or holds a mutex over a durable call"},
	{effect, "report input, output and the environment in workflow code: they belong into a step"},
	{context, "report a context.Context in workflow code: whatever needs one belongs into a step"},
	{maporder, "report iteration over a map whose order reaches durable calls or results"},
	{state, "report state outside the journal: package variables, fields and captured variables that change"},
	{captured, "report a step or query that assigns to a variable of its workflow"},
	{nested, "report a durable call inside a step"},
	{outerctx, "report a coroutine, section or clean-up that uses the context of the function around it"},
	{escape, "report a workflow context or a future kept in a field, a channel or a package variable"},
	{client, "report an App or a Client used by workflow code or by an entity"},
	{stepkey, "report perdure.Do in a loop without StepKey"},
	{unchecked, "report durable calls whose error, or whose future, is dropped"},
	{continueas, "report ContinueAsNew that is dropped or that is of another workflow"},
	{directcall, "report the code of a workflow or an activity that is called like an ordinary function"},
	{deferred, "report plain defers with durable calls, log lines or other effects: they run on every unload"},
	{pool, "report a pool used, or a commit, inside a transactional activity"},
	{constname, "report computed names of definitions and steps"},
	{allow, "report allow comments without a reason, and those that silence nothing"},
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

// known reports whether a word is the name of a check.
func known(word string) bool {
	for _, c := range checks {
		if string(c.name) == word {
			return true
		}
	}
	return false
}

// findings are what the index found, by check.
type findings map[check][]finding

// finding is one mistake.
type finding struct {
	pos, end token.Pos
	text     string
}

// index does the work for all checks: they only report what it found.
var index = &analysis.Analyzer{
	Name:       "perdureindex",
	Doc:        "find out what the functions of a package are for and what they reach",
	Run:        runIndex,
	ResultType: reflect.TypeFor[findings](),
	FactTypes:  []analysis.Fact{new(funcFact), new(varFact)},
}
