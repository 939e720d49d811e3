package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/query"
)

// listFlags select executions. The command translates the flags into a query, so a flag means the
// same as the condition of a query.
type listFlags struct {
	query            string
	workflow, prefix string
	statuses         []string
	labels           []string
	since, until     string
	all              bool
	limit            int
}

func (f *listFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.query, "query", "q", "", `conditions such as 'workflow = "order" and status = "open" and label.region = "eu"'`)
	cmd.Flags().StringVar(&f.workflow, "workflow", "", "select only this workflow")
	cmd.Flags().StringVar(&f.prefix, "key-prefix", "", "select only keys with this prefix")
	cmd.Flags().StringSliceVar(&f.statuses, "status", nil, "select only these statuses: open, closed, running, completed, failed, canceled, continued, terminated")
	cmd.Flags().StringArrayVar(&f.labels, "label", nil, "select only executions with this label, as name=value")
	cmd.Flags().StringVar(&f.since, "since", "", "started at or after this time (RFC 3339), or this long ago (1h)")
	cmd.Flags().StringVar(&f.until, "until", "", "started before this time, or this long ago")
	cmd.Flags().BoolVar(&f.all, "all-runs", false, "include earlier runs of a chain")
}

// text returns the query that the flags make.
func (f *listFlags) text() (string, error) {
	var all []string
	if f.query != "" {
		all = append(all, f.query)
	}
	if f.workflow != "" {
		all = append(all, "workflow = "+strconv.Quote(f.workflow))
	}
	if f.prefix != "" {
		all = append(all, "key = "+strconv.Quote(f.prefix)+"*")
	}

	if len(f.statuses) > 0 {
		quoted := make([]string, len(f.statuses))
		for i, word := range f.statuses {
			if _, ok := model.ParseStatus(word); !ok && word != "open" && word != "closed" {
				return "", fault.New(fault.Invalid, "--status is %q, must be open, closed, running, completed, failed, canceled, continued or terminated", word)
			}
			quoted[i] = strconv.Quote(word)
		}
		all = append(all, "status in ("+strings.Join(quoted, ", ")+")")
	}

	labels, err := readLabels(f.labels)
	if err != nil {
		return "", err
	}
	for _, l := range labels {
		all = append(all, "label."+l.Name+" = "+strconv.Quote(l.Value))
	}

	for _, bound := range [...]struct{ flag, value, op string }{{"--since", f.since, ">="}, {"--until", f.until, "<"}} {
		if bound.value == "" {
			continue
		}
		at, err := moment(bound.flag, bound.value)
		if err != nil {
			return "", err
		}
		all = append(all, "started "+bound.op+" "+strconv.Quote(at.Format(time.RFC3339Nano)))
	}

	return strings.Join(all, " and "), nil
}

// request returns the request that the flags make.
func (f *listFlags) request(tenant string) (api.ListRequest, error) {
	text, err := f.text()
	if err != nil {
		return api.ListRequest{}, err
	}
	q, err := query.Parse(text, time.Now())
	r := q.Request(tenant)
	r.AllRuns, r.Limit = r.AllRuns || f.all, 500
	return r, err
}

// listRequest returns the request for a printed list. It asks for reasons, and for at most one more
// entry than the list shows.
func (f *listFlags) listRequest(tenant string) (api.ListRequest, error) {
	r, err := f.request(tenant)
	r.Explain = true
	if f.limit > 0 {
		r.Limit = min(r.Limit, f.limit+1)
	}
	return r, err
}

// moment parses a time, or a duration back from now.
func moment(flag, text string) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return time.Time{}, fault.New(fault.Invalid, "%s is %s, must be >= 0: the duration counts back from now", flag, text)
		}
		return time.Now().Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fault.New(fault.Invalid, "%s is %q, must be a time such as 2026-11-15T08:00:00Z or a duration such as 90m", flag, text)
	}
	return t, nil
}

// readLabels parses name=value.
func readLabels(texts []string) ([]model.Label, error) {
	all := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || value == "" {
			return nil, fault.New(fault.Invalid, "--label is %q, must be name=value", text)
		}
		if err := model.CheckLabel(name, value); err != nil {
			return nil, fault.New(fault.Invalid, "--label %q: %w", text, err)
		}
		if _, twice := all[name]; twice {
			return nil, fault.New(fault.Invalid, "--label %s is given twice", name)
		}
		all[name] = value
	}
	return model.Labels(all), nil
}

func newWorkflowList(o *options) *cobra.Command {
	var f listFlags
	var watch bool
	cmd := &cobra.Command{
		Use: "list", Short: "List executions, newest first",
		Example: `  perdure workflow list --workflow greet --status running
  perdure workflow list --workflow greet --watch
  perdure workflow list --query 'status in ("failed", "canceled") and closed >= -24h and label.region = "eu"'
  perdure workflow list --since 1h -o json
  perdure workflow list --fields key,status,labels.region -o jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return o.watchExecutions(cmd.Context(), &f)
			}
			return o.list(cmd.Context(), &f)
		},
	}
	f.add(cmd)
	watchFlag(cmd, &watch, "then print executions as they change, one per line, until you interrupt the command")
	cmd.Flags().Var(count(&f.limit, 50), "limit", "most entries to list; 0 lists all")
	return cmd
}

func newWorkflowCount(o *options) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "count", Short: "Count executions",
		Example: `  perdure workflow count --query 'reason = "replay_mismatch"'`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.count(cmd.Context(), &f) },
	}
	f.add(cmd)
	return cmd
}

func (o *options) count(ctx context.Context, f *listFlags) error {
	req, err := f.request(o.tenant)
	if err != nil {
		return err
	}
	return o.with(ctx, true, func(b api.Backend) error {
		count, err := b.Count(ctx, req)
		if err != nil {
			return err
		}
		if o.structured() {
			return o.json(struct {
				Count int64 `json:"count"`
			}{count})
		}
		_, err = fmt.Fprintln(o.Out, count)
		return err
	})
}
