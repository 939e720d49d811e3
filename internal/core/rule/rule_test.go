package rule_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

var two = limit.Numbers{Concurrency: 2}

func TestPaths(t *testing.T) {
	t.Parallel()
	input := `{"customer": {"id": "c-1", "n": 12345678901234567890, "odd name": true, "": "nobody"}, "items": [{"sku": 1.50}, null], "é": "ü", "long": "` + strings.Repeat("x", 200) + `", "nul": "a\u0000b"}`
	for path, want := range map[string]string{
		`input.customer.id`:           "c-1",
		`input["customer"]["id"]`:     "c-1",
		`input.customer.n`:            "12345678901234567890",
		`input.customer["odd name"]`:  "true",
		`input.customer[""]`:          "nobody",
		`input.items[0].sku`:          "1.50",
		`input["\u00e9"]`:             "ü",
		`input.items[1]`:              "",
		`input.items[2]`:              "",
		`input.items`:                 "",
		`input.customer`:              "",
		`input.Customer.id`:           "",
		`input.customer.id.more`:      "",
		`input.customer[0]`:           "",
		`input.items.sku`:             "",
		`input`:                       "",
		`input.nothing.at["all"][17]`: "",
	} {
		p, err := rule.ParsePath(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got := p.Key(&model.Payload{Data: []byte(input)}); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}

	for _, path := range []string{`input.long`, `input.nul`} {
		p, _ := rule.ParsePath(path)
		if got := p.Key(&model.Payload{Data: []byte(input)}); !strings.HasPrefix(got, "sha256:") || len(got) > rule.MaxKey {
			t.Errorf("%s: %q", path, got)
		}
	}

	p, _ := rule.ParsePath("input")
	for _, in := range []*model.Payload{nil, {}, {Data: []byte(`"x`)}, {Data: []byte(`"x" "y"`)}, {Data: []byte(`"x"`), Encoding: "json+zstd"}, {Data: []byte(`"` + strings.Repeat("x", rule.MaxInput) + `"`)}} {
		if got := p.Key(in); got != "" {
			t.Errorf("%.20v: %q", in, got)
		}
	}

	if got := p.Key(&model.Payload{Data: []byte(` "x" `)}); got != "x" {
		t.Errorf("%q", got)
	}
}

func TestPathsThatAreNone(t *testing.T) {
	t.Parallel()

	for path, says := range map[string]string{
		"":                                    `"input" expected`,
		"customer.id":                         `"input" expected`,
		"inputs":                              "character 6: a dot",
		"input.":                              "character 6: a name",
		"input.1":                             "a name",
		"input..x":                            "a name",
		"input.x y":                           "character 8: a dot",
		"input[x]":                            "an index",
		"input[-1]":                           "an index",
		"input[99999999999]":                  "an index",
		"input[1":                             "an index",
		`input["x"`:                           "] after the name",
		`input["x`:                            "a name in quotes",
		"input.*":                             "a name",
		"input" + strings.Repeat(".a", 17):    "more than 16 steps",
		"input." + strings.Repeat("a", 300):   "at most 256",
		"input.x\xff":                         "UTF-8",
		"input[\"\xff\"]":                     "UTF-8",
		"input.x;input.y":                     "a dot",
		"input.äöü":                           "a name",
		"input" + strings.Repeat("[0]", 16+1): "more than 16 steps",
	} {
		if _, err := rule.ParsePath(path); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", path, err, says)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	s := set(t, []rule.Limit{
		{Name: "all", Numbers: limit.Numbers{Concurrency: 100}},
		{Name: "mail", Queue: "mail.*", Numbers: limit.Numbers{Concurrency: 10}},
		{Name: "queue", Tenant: "acme", Per: rule.PerQueue, Numbers: two},
		{Name: "kind", Kind: "send", Per: rule.PerKind, Numbers: two},
		{Name: "tenant", Per: rule.PerTenant, Numbers: two},
		{Name: "customer", Tenant: "ac*", Queue: "mail.eu", Per: rule.PerKey, Key: "input.customer", Numbers: two},
		{Name: "db", Per: rule.PerName, Numbers: two},
		{Name: "db", Tenant: "acme", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 1}},
		{Name: "other", Tenant: "other", Numbers: two},
	}, nil)

	spec := &model.TaskSpec{Kind: "send", Queue: "mail.eu", Limits: []string{"db/7", "nosuch"}}
	var got []string
	for _, u := range s.Resolve("acme", spec, &model.Payload{Data: []byte(`{"customer": 42}`)}) {
		r := u.Resource
		line := fmt.Sprintf("%s|%s|%s|%s|%d", r.Name, r.Selector, r.Tenant, r.Key, u.Numbers.Concurrency)
		if u.Missing {
			line += "|missing"
		}
		got = append(got, line)
	}

	want := []string{
		"all|*|||100", "customer|ac*|acme|42|2", "db|*|acme|7|2", "db|acme|acme|7|1", "kind|*|acme|send|2", "mail|*|||10",
		"nosuch|acme|acme||0|missing", "queue|acme|acme|mail.eu|2", "tenant|*|acme||2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := s.Resolve("x", &model.TaskSpec{Kind: "k", Queue: "q"}, nil); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	var none *rule.Set
	if got := none.Resolve("x", spec, nil); len(got) != 2 || !got[0].Missing {
		t.Errorf("%+v", got)
	}
}

// Resolve returns the resources of a task in an order that does not depend on the order of the
// rules, and each resource once.
func TestResolveIsCanonical(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"", "*", "a", "a*", "b", "ab"})
		n := rapid.IntRange(1, 6).Draw(t, "rules")
		var rules []rule.Limit
		for i := range n {
			rules = append(rules, rule.Limit{
				Name: fmt.Sprint("r", i), Tenant: word.Draw(t, "tenant"), Queue: word.Draw(t, "queue"), Kind: word.Draw(t, "kind"), Numbers: two,
				Per: rapid.SampledFrom([]rule.Scope{rule.Shared, rule.PerQueue, rule.PerKind, rule.PerTenant}).Draw(t, "per"),
			})
		}

		name := rapid.SampledFrom([]string{"a", "b", "ab", "c"})
		tenant, spec := name.Draw(t, "tenant"), &model.TaskSpec{Queue: name.Draw(t, "queue"), Kind: name.Draw(t, "kind")}
		one, err := rule.NewSet(rules, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := one.Resolve(tenant, spec, nil)
		slices.Reverse(rules)
		other, _ := rule.NewSet(rules, nil)
		if diff := cmp.Diff(got, other.Resolve(tenant, spec, nil)); diff != "" {
			t.Fatal(diff)
		}

		matches := func(pattern, text string) bool {
			begin, open := strings.CutSuffix(pattern, "*")
			return pattern == "" || pattern == text || open && strings.HasPrefix(text, begin)
		}

		want := 0
		for _, r := range rules {
			if matches(r.Tenant, tenant) && matches(r.Queue, spec.Queue) && matches(r.Kind, spec.Kind) {
				want++
			}
		}

		if len(got) != want || !slices.IsSortedFunc(got, func(a, b rule.Use) int { return a.Resource.Compare(b.Resource) }) {
			t.Fatalf("%+v, want %d resources in canonical order", got, want)
		}
	})
}

func TestBreakers(t *testing.T) {
	t.Parallel()
	config := func(n int) breaker.Config { return breaker.Config{Failures: n} }
	s := set(t, nil, []rule.Breaker{
		{Name: "*", Config: config(1)},
		{Name: "pay.*", Config: config(2)},
		{Name: "pay.visa", Config: config(3)},
		{Tenant: "acme", Name: "*", Config: config(4)},
		{Kind: "http.*", Config: config(5)},
	})
	for _, c := range []struct {
		tenant, name, kind string
		id                 string
		failures           int
	}{
		{"x", "db", "k", "db", 1},
		{"x", "pay.paypal", "k", "pay.paypal", 2},
		{"x", "pay.visa", "http.get", "pay.visa", 3},
		{"acme", "pay.visa", "k", "pay.visa", 4},
		{"x", "", "http.get", "activity:http.get", 5},
		{"x", "", "other", "", 0},
	} {
		id, got := s.Breaker(c.tenant, &model.TaskSpec{Breaker: c.name, Kind: c.kind})
		if c.id != "" {
			if same := s.BreakerConfig(id); same != got {
				t.Errorf("%+v: BreakerConfig returns %+v, Breaker returns %+v, want the same", c, same, got)
			}
		}
		if id.Name != c.id || got.Failures != c.failures || c.id != "" && id.Tenant != c.tenant {
			t.Errorf("%+v: %+v %+v", c, id, got)
		}
	}

	var none *rule.Set
	if id, _ := none.Breaker("x", &model.TaskSpec{Breaker: "db"}); id.Name != "db" {
		t.Errorf("without rules, the task that names breaker db has breaker %q", id.Name)
	}
}

func TestRulesThatAreRefused(t *testing.T) {
	t.Parallel()
	ok := rule.Limit{Name: "one", Queue: "q", Numbers: two}
	for _, c := range []struct {
		name     string
		limits   []rule.Limit
		breakers []rule.Breaker
		kind     fault.Kind
		says     []string
	}{
		{"name", []rule.Limit{{Name: "a/b", Numbers: two}}, nil, fault.Invalid, []string{"a/b"}},
		{"no name", []rule.Limit{{Numbers: two}}, nil, fault.Invalid, []string{"not a name"}},
		{"star", []rule.Limit{{Name: "x", Queue: "a*b", Numbers: two}}, nil, fault.Invalid, []string{"limit x", "a*b"}},
		{"scope", []rule.Limit{{Name: "x", Per: "moon", Numbers: two}}, nil, fault.Invalid, []string{"moon"}},
		{"key without scope", []rule.Limit{{Name: "x", Key: "input.a", Numbers: two}}, nil, fault.Invalid, []string{"per key"}},
		{"scope without key", []rule.Limit{{Name: "x", Per: rule.PerKey, Numbers: two}}, nil, fault.Invalid, []string{"input"}},
		{"named with a queue", []rule.Limit{{Name: "x", Per: rule.PerName, Queue: "q", Numbers: two}}, nil, fault.Invalid, []string{"leave out the queue"}},
		{"numbers", []rule.Limit{{Name: "x"}}, nil, fault.Invalid, []string{"limit x", "neither"}},
		{"twice", []rule.Limit{ok, {Name: "one", Queue: "other", Numbers: two}}, nil, fault.Conflict, []string{"called one"}},
		{"contradiction", []rule.Limit{ok, {Name: "two", Queue: "q", Numbers: limit.Numbers{Concurrency: 3}}}, nil, fault.Conflict, []string{"one and two", "at most 3", "at most 2"}},
		{"contradiction, written differently", []rule.Limit{{Name: "a", Numbers: two}, {Name: "b", Tenant: "*", Queue: "*", Numbers: limit.Numbers{Concurrency: 3}}}, nil, fault.Conflict, []string{"a and b"}},
		{"reason of an enabled limit", []rule.Limit{{Name: "x", Numbers: two, Why: "because"}}, nil, fault.Invalid, []string{"limit x", "disabled"}},
		{"disabled numbers", []rule.Limit{{Name: "x", Disabled: true}}, nil, fault.Invalid, []string{"neither"}},
		{"disabled twice", []rule.Limit{ok, {Name: "one", Queue: "other", Numbers: two, Disabled: true}}, nil, fault.Conflict, []string{"called one"}},
		{"breaker for nothing", nil, []rule.Breaker{{}}, fault.Invalid, []string{"either a name"}},
		{"breaker twice", nil, []rule.Breaker{{Name: "x*"}, {Name: "x*", Tenant: "*"}}, fault.Conflict, []string{"breaker x*"}},
		{"breaker numbers", nil, []rule.Breaker{{Name: "x", Config: breaker.Config{Ratio: 2000}}}, fault.Invalid, []string{"breaker x", "2000"}},
		{"two mistakes", []rule.Limit{{Name: "x"}, {Name: "y", Key: "no", Numbers: two}}, nil, fault.Invalid, []string{"limit x", "limit y"}},
	} {
		_, err := rule.NewSet(c.limits, c.breakers)
		if !fault.Is(err, c.kind) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, text := range c.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not say %q", c.name, err, text)
			}
		}
	}

	s := set(t, []rule.Limit{ok, {Name: "m", Queue: "mail.*", Numbers: two}, {Name: "all", Numbers: two}}, nil)
	if err := s.CheckQueues([]string{"q", "mail.eu"}); err != nil {
		t.Error(err)
	}

	for _, known := range [][]string{nil, {"q"}, {"mail.eu"}} {
		if err := s.CheckQueues(known); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "no queue") {
			t.Errorf("%v: %v", known, err)
		}
	}
}

// A disabled limit bounds no task, whether it selects tasks or tasks name it. It contradicts no
// other limit.
func TestDisabledLimits(t *testing.T) {
	t.Parallel()
	limits := func(disabled bool) []rule.Limit {
		return []rule.Limit{
			{Name: "selects", Tenant: "a", Queue: "q", Numbers: two, Disabled: disabled},
			{Name: "named", Tenant: "a", Per: rule.PerName, Numbers: two, Disabled: disabled, Why: map[bool]string{true: "because"}[disabled]},
		}
	}
	spec := &model.TaskSpec{Kind: "k", Queue: "q", Limits: []string{"named/7"}}

	if uses := set(t, limits(false), nil).Resolve("a", spec, &model.Payload{}); len(uses) != 2 || uses[0].Missing || uses[1].Missing {
		t.Errorf("enabled: %+v", uses)
	}
	s := set(t, append(limits(true), rule.Limit{Name: "other", Tenant: "a", Queue: "q", Numbers: limit.Numbers{Concurrency: 3}}), nil)
	uses := s.Resolve("a", spec, &model.Payload{})
	if len(uses) != 1 || uses[0].Resource.Name != "other" {
		t.Errorf("disabled: %+v", uses)
	}

	for _, name := range []string{"selects", "named"} {
		if n, ok := s.Numbers(rule.Resource{Name: name, Selector: "a", Tenant: "a"}); ok {
			t.Errorf("the disabled limit %s has the numbers %v, want none", name, n)
		}
	}
	if got := s.Limits(); len(got) != 3 || !got[0].Disabled || got[1].Why != "because" || got[1].Numbers != two {
		t.Errorf("the set has lost definitions of disabled limits: %+v", got)
	}
}

// A tenant that has the maximum number of rules does not keep other tenants from having rules.
func TestRulesAreBoundedPerTenant(t *testing.T) {
	t.Parallel()
	var limits []rule.Limit
	for _, tenant := range []string{"a", "b", "*"} {
		for n := range rule.MaxRules {
			limits = append(limits, rule.Limit{Name: fmt.Sprint("l", n), Tenant: tenant, Queue: fmt.Sprint("q", n), Numbers: limit.Numbers{Concurrency: 1}})
		}
	}

	s := set(t, limits, []rule.Breaker{{Name: "x", Tenant: "c"}})
	if uses := s.Resolve("a", &model.TaskSpec{Kind: "k", Queue: "q7"}, &model.Payload{}); len(uses) != 2 {
		t.Errorf("a task of tenant a needs %v, want two resources", uses)
	}
	more := []rule.Breaker{{Name: "x", Tenant: "a"}, {Name: "x", Tenant: "c"}, {Name: "y", Tenant: "a"}}
	_, err := rule.NewSet(limits, more)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "tenant a: 1002 rules, at most 1000") {
		t.Errorf("tenant a has two rules more than the maximum: %v", err)
	}
	fits, problems := rule.Fit(limits, more)
	if len(problems) != 1 || len(fits.Limits()) != len(limits) || len(fits.Breakers()) != 1 || fits.Breakers()[0].Tenant != "c" {
		t.Errorf("Fit keeps %d limits and the breakers %v, with the problems %v", len(fits.Limits()), fits.Breakers(), problems)
	}
}

func set(t *testing.T, limits []rule.Limit, breakers []rule.Breaker) *rule.Set {
	t.Helper()
	s, err := rule.NewSet(limits, breakers)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const (
	writtenLimit   = `{"name":"mail","queue":"mail.*","per":"key","key":"input.customer.id","concurrency":5,"rate":"100/1m","burst":10,"disabled":true,"reason":"quota"}`
	writtenBreaker = `{"kind":"http.*","ratio":0.25,"calls":10,"window":"30s","reset":"1m30s"}`
)

func TestForms(t *testing.T) {
	t.Parallel()
	var l rule.Limit
	if err := json.Unmarshal([]byte(writtenLimit), &l); err != nil {
		t.Fatal(err)
	}
	want := rule.Limit{
		Name: "mail", Queue: "mail.*", Per: rule.PerKey, Key: "input.customer.id",
		Numbers: limit.Numbers{Concurrency: 5, Rate: 100, Per: time.Minute, Burst: 10}, Disabled: true, Why: "quota",
	}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Error(diff)
	}
	if again, err := json.Marshal(l); err != nil || string(again) != writtenLimit {
		t.Errorf("%s, %v", again, err)
	}

	// Older versions do not know disabled limits, and refuse a limit with an unknown field. They
	// can read an enabled limit, because its JSON has neither of the new fields.
	l.Disabled, l.Why = false, ""
	if enabled, err := json.Marshal(l); err != nil || string(enabled) != strings.Replace(writtenLimit, `,"disabled":true,"reason":"quota"`, "", 1) {
		t.Errorf("%s, %v", enabled, err)
	}

	var b rule.Breaker
	if err := json.Unmarshal([]byte(writtenBreaker), &b); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(b); err != nil || string(again) != writtenBreaker {
		t.Errorf("%s, %v", again, err)
	}

	for _, text := range []string{`{"name":"x","concurency":1}`, `{"name":"x","rate":"100"}`, `{"name":"x","rate":"0/s"}`} {
		if err := json.Unmarshal([]byte(text), &l); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`{"name":"x","ratio":1.5}`, `{"name":"x","ratio":0.0001}`, `{"name":"x","window":"soon"}`} {
		if err := json.Unmarshal([]byte(text), &b); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", text, err)
		}
	}

	if n, per, err := rule.ParseRate("5/s"); n != 5 || per != time.Second || err != nil {
		t.Error(n, per, err)
	}
}

func FuzzPath(f *testing.F) {
	f.Add(`input.customer["odd \"name\""][0]`, `{"customer": {"odd \"name\"": ["x"]}}`)
	f.Add(`input`, `1`)
	f.Fuzz(func(t *testing.T, text, input string) {
		p, err := rule.ParsePath(text)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatal(err)
			}
			return
		}
		if p.String() != text {
			t.Fatalf("path %q prints as %q", text, p)
		}
		key := p.Key(&model.Payload{Data: []byte(input)})
		if len(key) > rule.MaxKey || strings.ContainsRune(key, 0) {
			t.Fatalf("%q", key)
		}
	})
}

// If a rule can be decoded, it can be encoded and decoded again without a change.
func FuzzForms(f *testing.F) {
	f.Add([]byte(writtenLimit), []byte(writtenBreaker))
	f.Fuzz(func(t *testing.T, limits, breakers []byte) {
		var l rule.Limit
		if json.Unmarshal(limits, &l) == nil {
			readBack(t, l)
		}
		var b rule.Breaker
		if json.Unmarshal(breakers, &b) == nil {
			readBack(t, b)
		}
	})
}

func readBack[R any](t *testing.T, r R) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again R
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if diff := cmp.Diff(r, again); diff != "" {
		t.Fatal(diff)
	}
}
