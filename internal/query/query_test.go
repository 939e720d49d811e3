package query_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/query"
)

var now = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

func at(text string) model.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return model.TimeOf(t)
}

func TestParse(t *testing.T) {
	t.Parallel()

	closed := []model.Status{model.Completed, model.Failed, model.Canceled, model.Continued, model.Terminated}
	for text, want := range map[string]query.Query{
		"":                                   {},
		" \t\n":                              {},
		`workflow = "a"`:                     {Workflows: []string{"a"}},
		`workflow="a"`:                       {Workflows: []string{"a"}},
		`workflow in ("a", "b")`:             {Workflows: []string{"a", "b"}},
		`workflow IN("a","b")`:               {Workflows: []string{"a", "b"}},
		"workflow = `a\"b`":                  {Workflows: []string{`a"b`}},
		`key = "x"`:                          {Key: "x"},
		`key = 'x'`:                          {Key: "x"},
		`key = 'it\'s "x" \\ \u00e4'*`:       {KeyPrefix: "it's \"x\" \\ ä"},
		`workflow in ('a', "b")`:             {Workflows: []string{"a", "b"}},
		`status='open' and started >= '-1h'`: {Statuses: []model.Status{model.Running}, StartedFrom: at("2026-11-15T11:00:00Z")},
		`label.region = 'eu'`:                {Labels: []model.LabelCondition{{Name: "region", Values: []string{"eu"}}}},
		`key = "x"*`:                         {KeyPrefix: "x"},
		`key = "x"* AND workflow = "a"`:      {KeyPrefix: "x", Workflows: []string{"a"}},
		`key = "a and b = \"c\""`:            {Key: `a and b = "c"`},
		`status = "open"`:                    {Statuses: []model.Status{model.Running}},
		`status = "closed"`:                  {Statuses: closed},
		`status in ("failed", "open")`:       {Statuses: []model.Status{model.Running, model.Failed}},
		`status != "open"`:                   {Statuses: closed},
		`status!="open"and status!="failed"`: {Statuses: []model.Status{model.Completed, model.Canceled, model.Continued, model.Terminated}},
		`status = "closed" and status!="failed" and status != "continued"`: {Statuses: []model.Status{model.Completed, model.Canceled, model.Terminated}},
		`reason = "replay_mismatch"`:                                       {Reasons: []model.ReasonCode{model.WaitMismatch}},
		`reason in ("timer", "signal")`:                                    {Reasons: []model.ReasonCode{model.WaitTimer, model.WaitSignal}},
		`started >= "2026-11-15T08:00:00Z"`:                                {StartedFrom: at("2026-11-15T08:00:00Z")},
		`started>=2026-11-15T09:00:00+01:00`:                               {StartedFrom: at("2026-11-15T08:00:00Z")},
		`started > 2026-11-15T08:00:00Z`:                                   {StartedFrom: at("2026-11-15T08:00:00Z") + 1},
		`started > 2026-11-15T08:00:00.0000005Z`:                           {StartedFrom: at("2026-11-15T08:00:00Z") + 1},
		`started >= 2026-11-15T08:00:00.0000005Z`:                          {StartedFrom: at("2026-11-15T08:00:00Z") + 1},
		`started <= 2026-11-15T08:00:00Z`:                                  {StartedTo: at("2026-11-15T08:00:00Z") + 1},
		`started < 2026-11-15T08:00:00Z`:                                   {StartedTo: at("2026-11-15T08:00:00Z")},
		`started >= -24h and started < -1h`:                                {StartedFrom: at("2026-11-14T12:00:00Z"), StartedTo: at("2026-11-15T11:00:00Z")},
		`started >= "-90m" and started >= -1h`:                             {StartedFrom: at("2026-11-15T11:00:00Z")},
		`started < -1h and started < -2h and started < -1h`:                {StartedTo: at("2026-11-15T10:00:00Z")},
		`closed < -720h`:                                                   {ClosedTo: at("2026-10-16T12:00:00Z")},
		`started < 1969-01-01T00:00:00Z`:                                   {StartedTo: 1},
		`label.region = "eu"`:                                              {Labels: []model.LabelCondition{{Name: "region", Values: []string{"eu"}}}},
		`label.a.b-c_1 in ("x", "y") and label.a != "z"`: {Labels: []model.LabelCondition{
			{Name: "a.b-c_1", Values: []string{"x", "y"}}, {Name: "a", Values: []string{"z"}, Not: true},
		}},
	} {
		got, err := query.Parse(text, now)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		checkAgain(t, &got)
	}
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkAgain checks that the text of a query is a query with the same meaning.
func checkAgain(t fataler, q *query.Query) {
	t.Helper()
	back, err := query.Parse(q.String(), now)
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	if diff := cmp.Diff(*q, back); diff != "" {
		t.Fatalf("%s is read back differently (-want +got):\n%s", q, diff)
	}
}

// A list has the latest run of each execution. No latest run has the status "continued", so a query
// for this status alone lists earlier runs.
func TestEarlierRuns(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": false, `status = "closed"`: false, `status != "completed"`: false, `status in ("failed", "continued")`: false,
		`status = "continued"`: true, `status = "closed" and status = "continued" and workflow = "a"`: true,
	} {
		q, err := query.Parse(text, now)
		if got := q.Request("t").AllRuns; err != nil || got != want || q.Earlier() != want {
			t.Errorf("%s: all runs %t, %v; want %t", text, got, err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		`colour = "red"`:                              `character 1: workflow, key, status, reason, started, closed or label.<name> expected before "colour = \"red\""`,
		`workflow`:                                    `character 9: "=" or "in" expected at the end`,
		`workflow < "a"`:                              `character 10: "=" or "in" expected before "< \"a\""`,
		`workflow = a`:                                `character 12: a text in quotes (" or ') expected before "a"`,
		`workflow = 'a`:                               `character 12: a text in quotes (" or ') expected`,
		`workflow = 'a\'`:                             `character 12: a text in quotes (" or ') expected`,
		`workflow = '\q'`:                             `character 12: a text in quotes (" or ') expected`,
		`workflow = ''`:                               `character 12: the text is empty`,
		`workflow = 'a"`:                              `character 12: a text in quotes (" or ') expected`,
		`workflow = "a`:                               `character 12: a text in quotes (" or ') expected`,
		`workflow = ""`:                               `character 12: the text is empty`,
		`workflow = "ä" or key = "x"`:                 `character 16: "and" or the end expected before "or key = \"x\""`,
		`workflow = "a" and`:                          `character 19: workflow, key`,
		`workflow = "a" and workflow = "b"`:           `character 20: workflow is given twice`,
		`key = "a" and key = "b"*`:                    `character 15: key is given twice`,
		`workflow in "a"`:                             `character 13: "(" expected`,
		`workflow in ("a" "b")`:                       `character 18: "," or ")" expected`,
		`workflow in ()`:                              `character 14: a text in quotes`,
		`key != "a"`:                                  `character 5: "=" expected`,
		`status = "asleep"`:                           `character 10: open, closed, running, completed, failed, canceled, continued, terminated expected`,
		`status = "open" and status = "failed"`:       `character 28: no status is left`,
		`reason = "tired"`:                            `character 10: a reason, one of timer, signal`,
		`started = "2026-11-15T08:00:00Z"`:            `character 9: ">=", "<=", ">" or "<" expected`,
		`started > "2026-11-15"`:                      `character 11: a time such as`,
		`started > 24h`:                               `character 11: a time such as`,
		`started >`:                                   `character 10: a time such as`,
		`label. = "a"`:                                `character 1: the name of label "" has 0 bytes`,
		`label.` + strings.Repeat("x", 65) + ` = "a"`: `has 65 bytes`,
		`label.a = "x"*`:                              `character 14: "and" or the end expected`,
		`label.a > "x"`:                               `character 9: "!=", "=" or "in" expected`,
		`label.a = "\xff"`:                            `character 11: the value of label a is not valid UTF-8`,
		`drop table executions; --`:                   `character 1:`,
	} {
		_, err := query.Parse(text, now)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "query, "+want) && !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		}
	}
}

// Texts that are nearly queries are refused or parsed. A parsed query has a text with the same
// meaning.
func TestRandomTexts(t *testing.T) {
	t.Parallel()
	words := rapid.SampledFrom([]string{
		"workflow", "key", "status", "reason", "started", "closed", "label.a", "label.", "and", "in", "(", ")", ",", "=", "!=", "<", "<=", ">", ">=", "*",
		`"a"`, `"open"`, `"failed"`, `"timer"`, `""`, `"\xff"`, `"\u00e9"`, "`x`", "-1h", "-0s", "2026-11-15T08:00:00Z", "9999-12-31T23:59:59-23:00", "é", "\x00", " ",
	})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(words, 0, 12).Draw(t, "words"), rapid.SampledFrom([]string{" ", ""}).Draw(t, "between"))
		q, err := query.Parse(text, now)
		if err == nil {
			checkAgain(t, &q)
		} else if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "character") {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

// Every query has a text.
func TestRandomQueries(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.StringN(1, 20, -1), rapid.SampledFrom([]string{`"`, `\`, "\xff", "a\x00", "*", "' or 1=1"}))
	some := rapid.SliceOfN(text, 1, 3)

	conditions := map[string]func(t *rapid.T) string{
		"workflow": func(t *rapid.T) string { return oneOf(some.Draw(t, "workflows")) },
		"key": func(t *rapid.T) string {
			return "=" + quote(text.Draw(t, "key")) + rapid.SampledFrom([]string{"", "*"}).Draw(t, "star")
		},
		"reason": func(t *rapid.T) string { return oneOf([]string{"timer", "quarantined"}) },
		"status": func(t *rapid.T) string { return oneOf([]string{"failed", "open"}) },
		"started": func(t *rapid.T) string {
			return "<= " + rapid.SampledFrom([]string{"-1h", "-1ns", "-2400000h"}).Draw(t, "time")
		},
		"closed": func(t *rapid.T) string { return "> -1h" },
	}

	names := []string{"workflow", "key", "reason", "status", "started", "closed"}
	rapid.Check(t, func(t *rapid.T) {
		var all []string
		for _, name := range names {
			if rapid.Bool().Draw(t, name) {
				all = append(all, name+" "+conditions[name](t))
			}
		}
		q, err := query.Parse(strings.Join(all, " and "), now)
		if err != nil {
			t.Fatalf("%s: %v", all, err)
		}
		checkAgain(t, &q)
	})
}

func FuzzParse(f *testing.F) {
	f.Add(`workflow in ("a", "b") and key = "x"* and status != "open" and started >= -24h and label.region = "eu"`)
	f.Add(`closed < 2026-11-15T08:00:00Z and reason = "timer"`)
	f.Fuzz(func(t *testing.T, text string) {
		if q, err := query.Parse(text, now); err == nil {
			checkAgain(t, &q)
		}
	})
}

func quote(s string) string { return strconv.Quote(s) }

func oneOf(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = quote(v)
	}
	return "in (" + strings.Join(quoted, ",") + ")"
}
