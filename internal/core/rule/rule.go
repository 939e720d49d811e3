package rule

import (
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Scope says which of the tasks that a rule selects share a resource.
type Scope string

// Scopes.
const (
	Shared    Scope = ""       // one resource for all tasks
	PerQueue  Scope = "queue"  // one resource per queue
	PerKind   Scope = "kind"   // one resource per kind
	PerTenant Scope = "tenant" // one resource per tenant
	PerKey    Scope = "key"    // one resource per value of Key in the input
	PerName   Scope = "name"   // one resource per key in "name/key" of a task; selects no tasks
)

// activity is the word that users see for a kind.
const activity = "activity"

// Word returns the scope in the words of users, who say activity instead of kind.
func (s Scope) Word() string {
	if s == PerKind {
		return activity
	}
	return string(s)
}

// ScopeOf returns the scope for a word of users. A Set refuses scopes that do not exist.
func ScopeOf(word string) Scope {
	if word == activity {
		return PerKind
	}
	return Scope(word)
}

// MaxName is the longest name of a rule, and the longest pattern, in bytes.
const MaxName = 128

// Limit is a rule: which tasks share a resource, and what the resource allows.
type Limit struct {
	// Name is the name of the rule and of its resources.
	Name string
	// Tenant, Queue and Kind select tasks: by exact name, by a prefix that ends with *, or all
	// tasks when empty or *.
	Tenant string
	Queue  string
	Kind   string
	Per    Scope
	// Key is the expression of a rule per key; see ParsePath.
	Key     string
	Numbers limit.Numbers
	// Disabled says that the rule bounds nothing: tasks that it selects, and tasks that name it,
	// need no permit of it. Why is the reason of the operator who disabled it.
	Disabled bool
	Why      string
}

// Breaker is a rule with the configuration of circuit breakers.
type Breaker struct {
	Tenant string
	// Name selects the breakers that tasks name. Kind selects kinds of tasks. Each of these kinds
	// has a breaker of its own, for tasks that name no breaker. Exactly one of the two is set.
	Name   string
	Kind   string
	Config breaker.Config
}

// pattern is an exact text, or a prefix.
type pattern struct {
	text string
	open bool // matches everything with this prefix
}

// parsePattern reads a pattern. The empty text means *.
func parsePattern(what, text string) (pattern, error) {
	if text == "" {
		return pattern{open: true}, nil
	}
	if len(text) > MaxName || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return pattern{}, fault.New(fault.Invalid, "%s %q must be valid UTF-8 without control characters, at most %d bytes", what, text, MaxName)
	}
	begin, open := strings.CutSuffix(text, "*")
	if strings.Contains(begin, "*") {
		return pattern{}, fault.New(fault.Invalid, "%s %q: a * may only be the last character", what, text)
	}
	return pattern{begin, open}, nil
}

// matches reports whether the pattern selects a text.
func (p pattern) matches(text string) bool {
	return p.text == text || p.open && strings.HasPrefix(text, p.text)
}

// special returns how specific a pattern is. Exact patterns come before prefixes, and longer
// prefixes before shorter ones.
func (p pattern) special() int {
	if p.open {
		return len(p.text)
	}
	return MaxName + 1
}

// String returns the text that was parsed.
func (p pattern) String() string {
	if p.open {
		return p.text + "*"
	}
	return p.text
}

// Resource identifies what a permit gives access to.
type Resource struct {
	Name string
	// Selector is the tenant pattern of the rule. Tenant is the tenant whose resource this is;
	// empty for a resource that tenants share.
	Selector, Tenant string
	Key              string
}

// String returns name or name/key. The tenant comes in front if the rule is for several tenants and
// each of them has a resource of its own.
func (r Resource) String() string {
	s := r.Name
	if r.Key != "" {
		s += "/" + r.Key
	}
	if r.Tenant != "" && r.Tenant != r.Selector {
		s = r.Tenant + ":" + s
	}
	return s
}

// Address returns the address by which resources are spread over shards.
func (r Resource) Address() model.Address {
	return model.Address{Tenant: r.Tenant, Type: "limit:" + r.Name + "@" + r.Selector, Key: r.Key}
}

// BreakerID identifies a breaker.
type BreakerID struct{ Tenant, Name string }

// String returns the name.
func (id BreakerID) String() string { return id.Name }

// IsZero reports whether there is no breaker.
func (id BreakerID) IsZero() bool { return id == BreakerID{} }

// KindBreaker returns the name of the breaker of a kind.
func KindBreaker(kind string) string { return "activity:" + kind }
