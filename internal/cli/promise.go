package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// promiseShape is a promise that an execution waits for, in JSON.
type promiseShape struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run"`
	Promise  string `json:"promise"`
	// Started is when the run was started.
	Started string `json:"started"`

	at model.Time
}

// newPromiseList lists promises that executions wait for.
//
// A store has no rows of promises: a promise is a wait in the code of an execution, and the row of
// the execution has its first 16 waits. So the command reads rows of open executions, page by page,
// and stops after maxScanned of them.
func newPromiseList(o *options) *cobra.Command {
	f := listFlags{statuses: []string{"open"}}
	cmd := &cobra.Command{
		Use: "list", Short: "List the promises that executions wait for, newest executions first", Args: cobra.NoArgs,
		Long: `List the promises that executions wait for, newest executions first.

The command looks through the open executions that the flags select, at most 20,000 of them, and says so if there are more. An execution that waits for more than 16 things names 16 of them. A promise that was settled before its execution awaits it is not listed.

The command asks the processes what their executions wait for. If a process does not answer, its executions are listed when they have left memory, IdleAfter (5 s) after they began to wait.`,
		Example: "  perdure promise list\n  perdure promise list --workflow order --since 24h -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.request(o.tenant)
			if err != nil {
				return err
			}
			return o.with(cmd.Context(), true, func(b api.Backend) error { return o.listPromises(cmd.Context(), b, r, f.limit) })
		},
	}
	cmd.Flags().StringVarP(&f.query, "query", "q", "", "only executions that this query selects; see perdure workflow list")
	cmd.Flags().StringVar(&f.workflow, "workflow", "", "select only this workflow")
	cmd.Flags().StringVar(&f.prefix, "key-prefix", "", "select only keys with this prefix")
	cmd.Flags().StringVar(&f.since, "since", "", "started at or after this time (RFC 3339), or this long ago (1h)")
	cmd.Flags().StringVar(&f.until, "until", "", "started before this time, or this long ago")
	cmd.Flags().Var(count(&f.limit, 50), "limit", "most entries to list; 0 lists all")
	return cmd
}

// listPromises prints the promises that the selected executions wait for.
func (o *options) listPromises(ctx context.Context, b api.Backend, r api.ListRequest, limit int) error {
	found, more := []promiseShape{}, false
	r.Explain = true // an execution in memory has not stored what it waits for
	seen, err := scan(ctx, b, r, func(d *api.Description) (over bool) {
		for _, why := range d.Reasons {
			if why.Code != model.WaitPromise {
				continue
			}
			if limit > 0 && len(found) == limit {
				more = true
				return true
			}
			s := &d.Start
			found = append(found, promiseShape{s.Address.Type, s.Address.Key, s.Run.String(), why.Name, when(s.At), s.At})
		}
		return false
	})
	if err != nil {
		return err
	}

	if o.structured() {
		err = o.json(found)
	} else {
		rows := make([][]string, len(found))
		for i, p := range found {
			rows[i] = []string{p.Workflow + "/" + p.Key, p.Promise, second(p.at), p.Run}
		}
		err = o.table("EXECUTION\tPROMISE\tSTARTED?\tRUN?", rows)
	}
	if seen > maxScanned {
		fmt.Fprintf(o.Err, "The command has looked at %d open executions, and there are more: add --workflow, --since or --until.\n", seen)
	}
	o.more(more)
	return err
}
