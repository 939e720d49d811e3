package cli

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/deploy"
	"github.com/perdure/perdure/internal/fault"
)

// sizeOf returns how many bytes results take, as the bound of a report counts them.
func sizeOf(results []api.ReplayResult) (size int) {
	for _, r := range results {
		size += len(r.Workflow) + len(r.Key) + len(r.Text)
	}
	return size
}

// A report that is too large keeps the histories that do not fit the build. It loses texts first,
// and then histories that were not replayed.
func TestDeployCheckFitsItsReport(t *testing.T) {
	t.Parallel()
	many := func(n, key int, outcome, text string) []api.ReplayResult {
		return slices.Repeat([]api.ReplayResult{{Workflow: "order", Key: strings.Repeat("k", key), Outcome: outcome, Text: text}}, n)
	}
	long := strings.Repeat("é", 5000)
	for what, c := range map[string]struct {
		results []api.ReplayResult
		count   [5]int // by severity
		left    int
	}{
		"small":        {slices.Concat(many(3, 1, api.ReplayFits, ""), many(1, 1, api.ReplayMismatch, "event 1")), [5]int{1, 0, 3}, 0},
		"nothing":      {},
		"long texts":   {many(500, 10, api.ReplayMismatch, long), [5]int{500}, 0},
		"long keys":    {slices.Concat(many(1000, 700, api.ReplaySkipped, long), many(1000, 700, api.ReplayFits, ""), many(500, 700, api.ReplayMismatch, long)), [5]int{500, 0, 987}, 1013},
		"many skipped": {slices.Concat(many(2000, 1, api.ReplayAbsent, ""), many(1990, 1, api.ReplayFits, ""), many(10, 1, api.ReplayError, long)), [5]int{0, 10, 1990}, 2000},
	} {
		got, left := fitReport(c.results)
		var count [5]int
		for _, r := range got {
			count[slices.Index(severity, r.Outcome)]++
			if !utf8.ValidString(r.Text) || len(r.Text) > api.MaxReplayText {
				t.Errorf("%s: a text of %d bytes: %.20q", what, len(r.Text), r.Text)
			}
		}
		if count != c.count || left != c.left || sizeOf(got) > api.MaxReplayReportBytes || len(got) > api.MaxReplayResults {
			t.Errorf("%s: %v and %d left out, %d bytes; want %v and %d", what, count, left, sizeOf(got), c.count, c.left)
		}
	}

	for text, want := range map[string]string{"": "", "short": "short", "123456789": "12345…", "1234\xff": "1234\uFFFD", "a\x00": "a\uFFFD", "ééééé": "éé…"} {
		if got := fitText(text, 8); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got := fitText("some", 2); got != "" {
		t.Errorf("there is no room for a mark, and %q is left", got)
	}
}

func TestResultOfAVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v    deploy.Verdict
		want api.ReplayResult
	}{
		{deploy.Verdict{}, api.ReplayResult{Outcome: api.ReplayFits}},
		{deploy.Verdict{Kind: fault.NotFound.String(), Text: "no code"}, api.ReplayResult{Outcome: api.ReplayAbsent}},
		{deploy.Verdict{Kind: fault.Blocked.String(), Text: "event 3", Event: 3}, api.ReplayResult{Outcome: api.ReplayMismatch, Event: 3, Text: "event 3"}},
		{deploy.Verdict{Kind: fault.Timeout.String(), Text: "late"}, api.ReplayResult{Outcome: api.ReplayError, Text: "late"}},
	} {
		if got := resultOf(&c.v); got != c.want {
			t.Errorf("%+v is reported as %+v, want %+v", c.v, got, c.want)
		}
	}
}
