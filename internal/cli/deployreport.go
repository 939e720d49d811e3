package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/deploy"
	"github.com/perdure/perdure/internal/fault"
)

// checkReport refuses flags with which the report could not be stored, before anything is replayed.
func (c *deployCheck) checkReport() error {
	switch {
	case !c.post && (c.name != "" || c.source != "" || c.id != ""):
		return fault.New(fault.Invalid, "--build, --source and --request-id belong to --report")
	case c.post && c.most > api.MaxReplayResults:
		return fault.New(fault.Invalid, "--limit is %d, and a replay report has at most %d results", c.most, api.MaxReplayResults)
	}
	return nil
}

// note keeps a result for the report. Results of histories that were not replayed go into the
// separate list spare, because --limit does not apply to them, and they must not displace a
// mismatch.
func (c *deployCheck) note(d *api.Description, r api.ReplayResult) {
	if !c.post {
		return
	}
	r.Workflow, r.Key, r.Run = d.Start.Address.Type, d.Start.Address.Key, d.Start.Run
	switch {
	case r.Outcome != api.ReplayAbsent && r.Outcome != api.ReplaySkipped:
		c.results = append(c.results, r)
	case len(c.spare) < api.MaxReplayResults:
		c.spare = append(c.spare, r)
	default:
		c.report.LeftOut++
	}
}

// resultOf returns the result that a report has for a verdict.
func resultOf(v *deploy.Verdict) api.ReplayResult {
	switch v.Kind {
	case "":
		return api.ReplayResult{Outcome: api.ReplayFits}
	case fault.NotFound.String():
		return api.ReplayResult{Outcome: api.ReplayAbsent}
	case fault.Blocked.String():
		return api.ReplayResult{Outcome: api.ReplayMismatch, Event: v.Event, Text: v.Text}
	}
	return api.ReplayResult{Outcome: api.ReplayError, Text: v.Text}
}

// store stores the report, if the check has found a history.
func (c *deployCheck) store(ctx context.Context, o *options) error {
	results, left := fitReport(append(c.results, c.spare...))
	c.report.LeftOut += left
	if len(results) == 0 {
		return nil
	}

	r := api.ReplayReportRequest{Tenant: c.tenant, Build: cmp.Or(c.name, c.report.Version), Source: c.source, RequestID: cmp.Or(c.id, uuid.NewString()), Results: results}
	err := o.with(ctx, false, func(b api.Backend) error {
		got, err := b.AddReplayReport(ctx, r)
		if err == nil {
			c.report.Report = got.Report.ID.String()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("store the replay report: %w", err)
	}
	return nil
}

// tellReport prints whether the report was stored.
func (c *deployCheck) tellReport(o *options) {
	switch {
	case c.report.Report != "":
		fmt.Fprintf(o.Out, "Stored as replay report %s.\n", c.report.Report)
	case c.post:
		fmt.Fprintln(o.Out, "No replay report is stored.")
	}
	if c.report.LeftOut > 0 {
		fmt.Fprintf(o.Out, "The replay report has no room for %d further histories.\n", c.report.LeftOut)
	}
}

// severity orders outcomes, the most important first. If a report is too large, results with the
// least important outcomes are left out first.
var severity = []string{api.ReplayMismatch, api.ReplayError, api.ReplayFits, api.ReplayAbsent, api.ReplaySkipped}

// fitReport leaves out results and shortens texts so that the report is not too large. The
// mismatches of a build are usually similar, so a short text is enough. It returns how many results
// it has left out.
func fitReport(results []api.ReplayResult) (fit []api.ReplayResult, left int) {
	slices.SortStableFunc(results, func(a, b api.ReplayResult) int {
		return cmp.Compare(slices.Index(severity, a.Outcome), slices.Index(severity, b.Outcome))
	})

	room, texts := api.MaxReplayReportBytes, 0
	for i := range results {
		n := len(results[i].Workflow) + len(results[i].Key)
		if i == api.MaxReplayResults || n > room {
			results, left = results[:i], len(results)-i
			break
		}
		room -= n
		if results[i].Text != "" {
			texts++
		}
	}

	most := min(api.MaxReplayText, room/max(texts, 1))
	for i := range results {
		results[i].Text = fitText(results[i].Text, most)
	}
	return results, left
}

// fitText cuts a text to a number of bytes, and marks the cut. It replaces bytes that cannot be
// stored.
func fitText(text string, most int) string {
	const mark = "…"
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= most {
		return text
	}
	end := max(most-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	if end == 0 {
		return ""
	}
	return text[:end] + mark
}
