package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
)

func newQueue(o *options) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{Use: "queue", Short: "Queues of tasks", Example: "  perdure queue list\n  perdure queue show mails"}
	list := &cobra.Command{
		Use: "list", Short: "List queues, their open tasks and their workers", Args: cobra.NoArgs,
		Long: `List queues, their open tasks and their workers.

The command asks the running nodes, or the program that has a file open. If one of them does not answer, or none is running, it counts the tasks in the histories of open executions.`,
		Example: "  perdure queue list -o json\n  perdure queue list --watch",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return o.watchQueues(cmd.Context())
			}
			return o.printQueues(cmd.Context(), "")
		},
	}
	watchFlag(list, &watch, "then print queues as they change, one per line, until you interrupt the command")
	cmd.AddCommand(
		list,
		&cobra.Command{
			Use: "show queue", Short: "Show one queue", Args: cobra.ExactArgs(1), Example: "  perdure queue show mails",
			RunE: func(cmd *cobra.Command, args []string) error { return o.printQueues(cmd.Context(), args[0]) },
		},
	)
	cmd.AddCommand(o.queueVerbs()...)
	return cmd
}

// queueLine is a queue in JSON.
type queueLine struct {
	Queue   string `json:"queue"`
	Open    int    `json:"open"`
	Waiting *int   `json:"waiting,omitempty"`
	Delayed *int   `json:"delayed,omitempty"`
	Claimed *int   `json:"claimed,omitempty"`
	Oldest  string `json:"oldest,omitempty"`
	Workers int    `json:"workers"`
	Slots   int    `json:"slots"`
	Paused  bool   `json:"paused,omitempty"`
	Reason  string `json:"reason,omitempty"` // why it is paused
	// Unserved are activities with waiting tasks that no live process executes.
	Unserved []string `json:"unserved,omitempty"`
	From     string   `json:"from"`
}

// queueView is the output of a command about queues: lines for JSON, and rows of a table.
type queueView struct {
	lines   []queueLine
	rows    [][]string
	counted bool // the counts come from a node
}

// readQueues reads the queues of the tenant, or one of them.
func (o *options) readQueues(ctx context.Context, b api.Backend, only string) (v queueView, err error) {
	list, err := b.ListQueues(ctx, o.tenant)
	if err != nil {
		return v, err
	}
	paused, err := b.Queues(ctx, o.tenant)
	if err != nil {
		return v, err
	}

	for _, p := range paused {
		if p.Paused && !slices.ContainsFunc(list.Queues, func(q api.QueueInfo) bool { return q.Name == p.Name }) {
			list.Queues = append(list.Queues, api.QueueInfo{Name: p.Name})
		}
	}

	v = queueView{lines: []queueLine{}, counted: list.Counted}
	for i := range list.Queues {
		q := &list.Queues[i]
		if only != "" && q.Name != only {
			continue
		}
		l := queueLine{
			Queue: q.Name, Open: q.Open, Workers: q.Workers, Slots: q.Slots, Paused: q.Paused, Oldest: when(q.Oldest), Unserved: q.Unserved, From: "store",
		}
		state := "-"

		if n := slices.IndexFunc(paused, func(p api.QueueStatus) bool { return p.Paused && p.Name == q.Name }); n >= 0 {
			l.Paused, l.Reason = true, paused[n].Why
			state = strings.TrimSuffix("paused: "+paused[n].Why, ": ")
		}

		if len(q.Unserved) > 0 {
			state = strings.TrimPrefix(state+"; ", "-; ") + "no live process executes " + strings.Join(q.Unserved, ", ")
		}
		row := []string{q.Name, strconv.Itoa(q.Open), second(q.Oldest), strconv.Itoa(q.Workers), strconv.Itoa(q.Slots), state}
		if list.Counted {
			l.From = "node"
		}
		if q.Waiting+q.Delayed+q.Claimed == q.Open {
			l.Waiting, l.Delayed, l.Claimed = &q.Waiting, &q.Delayed, &q.Claimed
		}
		v.lines, v.rows = append(v.lines, l), append(v.rows, row)
	}
	return v, nil
}

func (o *options) printQueues(ctx context.Context, only string) error {
	return o.with(ctx, true, func(b api.Backend) error {
		v, err := o.readQueues(ctx, b, only)
		if err != nil {
			return err
		}
		if only != "" && len(v.lines) == 0 {
			return fault.New(fault.NotFound, "queue %s has no tasks and no workers", only)
		}
		return o.printQueueView(&v)
	})
}

func (o *options) printQueueView(v *queueView) error {
	if o.structured() {
		return o.json(v.lines)
	}
	if err := o.table("QUEUE\tOPEN\tOLDEST?\tWORKERS\tSLOTS?\tSTATE", v.rows); err != nil {
		return err
	}
	if !v.counted {
		fmt.Fprintln(o.Err, "The counts come from the store, not from a node.")
	}
	return nil
}

func newWorker(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "worker", Short: "Processes that run workflows and execute tasks", Example: "  perdure worker list"}
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "List the workers of all live nodes", Args: cobra.NoArgs, Example: "  perdure worker list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(cmd.Context(), true, func(b api.Backend) error {
				workers, err := b.ListWorkers(cmd.Context(), o.tenant)
				if err != nil {
					return err
				}
				return o.printWorkers(workers)
			})
		},
	}, newWorkerDescribe(o), newWorkerVersions(o), newWorkerSessions(o), newWorkerDrain(o))
	return cmd
}

func (o *options) printWorkers(workers []api.WorkerInfo) error {
	if o.structured() {
		type line struct {
			Node       string   `json:"node"`
			Host       string   `json:"host"`
			Name       string   `json:"name,omitempty"`
			Version    string   `json:"version,omitempty"`
			Workflows  []string `json:"workflows,omitempty"`
			Entities   []string `json:"entities,omitempty"`
			Queues     []string `json:"queues,omitempty"`
			Activities []string `json:"activities,omitempty"`
			Slots      int      `json:"slots,omitempty"`
			Limits     []string `json:"limits,omitempty"`
			Breakers   []string `json:"breakers,omitempty"`
			Draining   bool     `json:"draining,omitempty"`
			Alike      int      `json:"alike,omitempty"`
		}

		lines := make([]line, len(workers))
		for i, w := range workers {
			lines[i] = line{w.Node.String(), w.Host, w.Name, w.Version, w.Workflows, entityWords(w.Entities), w.Queues, w.Activities, w.Slots, w.Limits, w.Breakers, w.Draining, w.Alike}
		}
		return o.json(lines)
	}

	rows := make([][]string, len(workers))
	for i, w := range workers {
		does, slots, state := "workflows "+strings.Join(w.Workflows, ", "), "", "serves"
		switch entities := strings.Join(entityWords(w.Entities), ", "); {
		case entities != "" && len(w.Workflows) > 0:
			does += "; entities " + entities
		case entities != "":
			does = "entities " + entities
		}

		if w.Name != "" {
			does, slots = fmt.Sprintf("queues %s: %s", strings.Join(w.Queues, ", "), strings.Join(w.Activities, ", ")), strconv.Itoa(w.Slots)
		}
		if w.Alike > 0 {
			does += fmt.Sprintf(" (%d workers)", w.Alike+1)
		}
		if w.Draining {
			state = "drains"
		}
		rows[i] = []string{w.Host, w.Version, state, slots, does}
	}

	return o.table("HOST\tVERSION\tSTATE\tSLOTS\tWHAT", rows)
}
