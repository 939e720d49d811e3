package perduretest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Bounds of the output of a failed test. The output says how much it leaves out.
const (
	maxExecutions = 20
	maxEvents     = 100
	maxValue      = 200 // bytes of an input or output
)

// executions returns all runs in the store, oldest first.
func (w *world) executions() ([]store.Execution, error) {
	q := store.Query{Tenant: model.DefaultTenant, AllRuns: true, Limit: 1000}
	var rows []store.Execution
	for {
		page, err := w.mem.List(context.Background(), q)
		if err != nil {
			return nil, err
		}
		rows = append(rows, page.Executions...)
		if len(page.Executions) < q.Limit {
			slices.Reverse(rows)
			return rows, nil
		}
		last := &rows[len(rows)-1]
		q.After = store.PageMark{Started: last.Start.At, Run: last.Start.Run}
	}
}

func addressText(a model.Address) string { return a.Type + "/" + a.Key }

// report returns the text that a failed test prints.
func (w *world) report() string {
	text := w.histories()
	if p, _ := w.process(); p != nil && p.App != nil && !p.Dead() {
		text += w.reasons(p.App)
	}
	return text
}

// histories returns all histories in the store as text.
func (w *world) histories() string {
	rows, err := w.executions()
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	b.WriteString("histories:\n")

	for i := range rows {
		if i == maxExecutions {
			fmt.Fprintf(&b, "… and %d more executions\n", len(rows)-i)
			break
		}
		b.WriteString(w.historyOf(&rows[i]))
	}

	if len(rows) == 0 {
		b.WriteString("  nothing was started\n")
	}
	return b.String()
}

// historyOf returns the history of one run as text.
func (w *world) historyOf(x *store.Execution) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", addressText(x.Start.Address), x.Outcome.Status)
	switch {
	case x.Outcome.Failure != nil:
		fmt.Fprintf(&b, ": %s", x.Outcome.Failure.Message)
	case x.Outcome.Status.Closed():
		fmt.Fprintf(&b, " %s", value(x.Outcome.Output))
	case x.Blocked != nil:
		fmt.Fprintf(&b, ", %s", x.Blocked)
	case len(x.Waits) > 0:
		fmt.Fprintf(&b, ", %s", x.Waits[0])
	}

	fmt.Fprintf(&b, "\n  %4d  %s  started %s\n", 0, clock(x.Start.At), value(x.Start.Input))
	events := slices.Clone(x.Start.Carried)
	stored, err := w.mem.LoadEvents(context.Background(), store.RunKey{Shard: x.Shard, Run: x.Start.Run}, int64(len(events)), math.MaxInt32, math.MaxInt32)
	if err != nil {
		fmt.Fprintf(&b, "  %v\n", err)
	}

	events = append(events, stored...)
	for i := range events {
		if i == maxEvents && len(events) > maxEvents+1 {
			fmt.Fprintf(&b, "        … and %d more events\n", len(events)-i)
			break
		}
		b.WriteString(eventText(&events[i]))
	}
	return b.String()
}

func eventText(e *model.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %4d  %s  %s", e.Seq, clock(e.At), strings.ReplaceAll(e.Kind.String(), "_", " "))
	if e.Name != "" {
		fmt.Fprintf(&b, " %s", e.Name)
	}

	if e.Target != (model.Address{}) {
		fmt.Fprintf(&b, " %s", addressText(e.Target))
	}
	if e.Task != nil {
		fmt.Fprintf(&b, " on %s", e.Task.Queue)
	}

	if e.Attempt > 1 {
		fmt.Fprintf(&b, ", attempt %d", e.Attempt)
	}
	if len(e.Input.Data) > 0 {
		fmt.Fprintf(&b, " %s", value(e.Input))
	}

	if len(e.Output.Data) > 0 {
		fmt.Fprintf(&b, " → %s", value(e.Output))
	}
	if e.Failure != nil {
		fmt.Fprintf(&b, " → error: %s", e.Failure.Message)
	}

	if e.Position != "" {
		fmt.Fprintf(&b, "   (%s)", e.Position)
	}
	b.WriteByte('\n')
	return b.String()
}

func clock(t model.Time) string { return t.Std().Format("2006-01-02 15:04:05.000") }

func value(p model.Payload) string {
	if len(p.Data) > maxValue {
		return fmt.Sprintf("%s… (%d bytes)", p.Data[:maxValue], len(p.Data))
	}
	return string(p.Data)
}

// reasons returns a text that says why open executions make no progress.
func (w *world) reasons(app *perdure.App) string {
	var b strings.Builder
	n := 0
	for info, err := range app.Executions().List(context.Background(), `status = "open"`) {
		if err != nil {
			fmt.Fprintf(&b, "  %v\n", err)
			break
		}
		if n++; n <= maxExecutions {
			if full, err := app.Executions().Describe(context.Background(), info.Ref); err == nil {
				info = full
			}
			fmt.Fprintf(&b, "  %s/%s %s\n", info.Ref.Workflow, info.Ref.Key, info.Reason)
		}
	}

	if n > maxExecutions {
		fmt.Fprintf(&b, "  … and %d more\n", n-maxExecutions)
	}
	if b.Len() == 0 {
		return "no execution is open"
	}

	return "open executions:\n" + strings.TrimSuffix(b.String(), "\n")
}
