// Package query is the language that selects executions, for programs and on the command line:
// conditions joined by "and".
//
//	workflow = "order" and status in ("failed", "canceled")
//		and started >= -24h and label.region = "eu"
//
// Texts are in double or in single quotes, so that users can choose the kind that their shell does
// not interpret. Times need no quotes. Parse turns the text of a query into a Query, which has
// plain fields for the API, and Query.String turns a Query into text again. The package does not
// execute queries. Errors name the character and what was expected there.
package query

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// Query is a set of conditions that must all hold. The zero value selects everything.
type Query struct {
	Workflows []string
	Key       string
	KeyPrefix string
	// Statuses are sorted; nil for all.
	Statuses []model.Status
	Reasons  []model.ReasonCode
	// An interval includes the time From and excludes the time To. Zero means that the interval has
	// no bound on that side.
	StartedFrom, StartedTo model.Time
	ClosedFrom, ClosedTo   model.Time
	Labels                 []model.LabelCondition
}

// Earlier reports whether the query selects only earlier runs: the status "continued" alone.
// Another run has followed each of these.
func (q *Query) Earlier() bool {
	return len(q.Statuses) > 0 && !slices.ContainsFunc(q.Statuses, func(s model.Status) bool { return s != model.Continued })
}

// Request returns the request that lists what the query selects among the executions of a tenant.
// That is the latest run of each execution, unless the query selects only earlier runs.
func (q *Query) Request(tenant string) api.ListRequest {
	return api.ListRequest{
		Tenant: tenant, AllRuns: q.Earlier(), Workflows: q.Workflows, Key: q.Key, KeyPrefix: q.KeyPrefix, Statuses: q.Statuses, Reasons: q.Reasons,
		StartedFrom: q.StartedFrom, StartedTo: q.StartedTo, ClosedFrom: q.ClosedFrom, ClosedTo: q.ClosedTo, Labels: q.Labels,
	}
}

// String returns the query as text, with absolute times.
func (q *Query) String() string {
	var all []string
	add := func(parts ...string) { all = append(all, strings.Join(parts, " ")) }
	if len(q.Workflows) > 0 {
		add("workflow", oneOf(q.Workflows))
	}
	if q.Key != "" {
		add("key =", strconv.Quote(q.Key))
	}
	if q.KeyPrefix != "" {
		add("key =", strconv.Quote(q.KeyPrefix)+"*")
	}
	if len(q.Statuses) > 0 {
		add("status", oneOf(names(q.Statuses)))
	}
	if len(q.Reasons) > 0 {
		add("reason", oneOf(q.Reasons))
	}

	for _, bound := range [...]struct {
		name string
		at   model.Time
	}{{"started >=", q.StartedFrom}, {"started <", q.StartedTo}, {"closed >=", q.ClosedFrom}, {"closed <", q.ClosedTo}} {
		if bound.at != 0 {
			add(bound.name, strconv.Quote(bound.at.Std().UTC().Format(time.RFC3339Nano)))
		}
	}

	for _, l := range q.Labels {
		if l.Not {
			add("label."+l.Name, "!=", strconv.Quote(l.Values[0]))
		} else {
			add("label."+l.Name, oneOf(l.Values))
		}
	}

	return strings.Join(all, " and ")
}

func names(statuses []model.Status) []string {
	words := make([]string, len(statuses))
	for i, s := range statuses {
		words[i] = s.String()
	}
	return words
}

// oneOf returns the condition that a field has one of the values, without the name of the field.
func oneOf[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = strconv.Quote(string(v))
	}
	if len(texts) == 1 {
		return "= " + texts[0]
	}
	return "in (" + strings.Join(texts, ", ") + ")"
}

// statuses returns all statuses.
func statuses() (all []model.Status) {
	for s := model.Running; s.String() != model.Status(0).String(); s++ {
		all = append(all, s)
	}
	return all
}

// statusesOf returns the statuses that a word names, such as all closed ones for "closed".
func statusesOf(word string) []model.Status {
	switch word {
	case "open":
		return []model.Status{model.Running}
	case "closed":
		return slices.DeleteFunc(statuses(), func(s model.Status) bool { return !s.Closed() })
	}
	if s, ok := model.ParseStatus(word); ok {
		return []model.Status{s}
	}
	return nil
}
