package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// sessionPrefix begins the id of a worker that is connected to a server.
const sessionPrefix = "session_"

// workerShape is one worker in JSON: a session on a server, or a process that has the store open.
type workerShape struct {
	// Worker is the id of the session, or the host and process.
	Worker     string   `json:"worker"`
	Node       string   `json:"node,omitempty"`
	Names      []string `json:"names,omitempty"`
	Tenant     string   `json:"tenant"`
	Version    string   `json:"version,omitempty"`
	Caller     string   `json:"caller,omitempty"`
	State      string   `json:"state"`
	Since      string   `json:"since,omitempty"`
	Heard      string   `json:"heard,omitempty"`
	Workflows  []string `json:"workflows,omitempty"`
	Entities   []string `json:"entities,omitempty"`
	Queues     []string `json:"queues,omitempty"`
	Activities []string `json:"activities,omitempty"`
	Limits     []string `json:"limits,omitempty"`
	Breakers   []string `json:"breakers,omitempty"`
	Slots      int      `json:"slots,omitempty"`
	// Alike is how many other workers of the server offer the same as this one. Slots includes
	// their slots.
	Alike int `json:"alike,omitempty"`
	// Holds counts what a connected worker holds. Only its server knows that.
	Holds *heldShape `json:"holds,omitempty"`

	since, heard model.Time
}

// heldShape counts what a worker holds, in JSON.
type heldShape struct {
	Runs  int `json:"runs"`
	Calls int `json:"calls"`
	Tasks int `json:"tasks"`
}

func newWorkerDescribe(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "describe worker", Short: "Show one worker: what it serves, its slots and what it holds", Args: cobra.ExactArgs(1),
		Long: `Show one worker: its version, since when it runs, what it serves, its slots and what it holds.

The worker is a session of perdure worker sessions, or a host, a name or a node of perdure worker list. Only the server that a worker is connected to knows its session, so a session needs --server and an admin key. What a process holds that has the store open itself is not known.`,
		Example: "  perdure worker describe session_K7X2M9QF --server grpc://host:7800\n  perdure worker describe shop-1.example.com:4711",
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := o.look(cmd.Context())
			if err != nil {
				return err
			}
			find := o.findProcess
			if strings.HasPrefix(args[0], sessionPrefix) {
				find = findSession
			}
			w, err := find(cmd.Context(), n, args[0])
			if err == nil {
				err = o.printWorker(w)
			}
			return errors.Join(err, n.Close())
		},
	}
}

// findSession returns the worker whose session begins with a text.
func findSession(ctx context.Context, n session, text string) (*workerShape, error) {
	all, err := n.Admin().WorkerSessions(ctx, "")
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	id, err := complete("worker", text, ids)
	if err != nil {
		return nil, err
	}

	found := &all[slices.Index(ids, id)]
	s := shapeSession(found)
	w := &workerShape{
		Worker: s.Session, Tenant: s.Tenant, Version: s.Agent, Caller: s.Caller, State: s.State, Since: s.Since, Heard: s.Heard,
		Workflows: s.Workflows, Entities: s.Entities, Queues: s.Queues, Activities: s.Activities, Slots: s.Slots,
		Holds: &heldShape{s.Runs, s.Calls, s.Tasks}, since: found.Since, heard: found.Heard,
	}
	if s.Name != "" {
		w.Names = []string{s.Name}
	}
	return w, nil
}

// findProcess returns the process whose host, node or worker has the given name.
func (o *options) findProcess(ctx context.Context, n session, text string) (*workerShape, error) {
	all, err := n.Backend().ListWorkers(ctx, o.tenant)
	if err != nil {
		return nil, err
	}
	text, err = completeProcess(text, all)
	if err != nil {
		return nil, err
	}
	w := &workerShape{Tenant: o.tenant}
	for i := range all {
		if a := &all[i]; text != a.Name && text != a.Host && text != a.Node.String() {
			continue
		} else if err := w.add(a); err != nil {
			return nil, err
		}
	}

	// A caller of one tenant may not read the nodes, so it sees the worker without its start time.
	nodes, err := n.Admin().Nodes(ctx)
	if err != nil && !fault.Is(err, fault.Denied) {
		return nil, err
	}
	for i := range nodes {
		if nodes[i].ID.String() == w.Node {
			w.Since, w.since = when(nodes[i].Since), nodes[i].Since
		}
	}
	return w, nil
}

// completeProcess returns the host, the name or the node that a text means. People choose hosts and
// names, so a user may shorten them only in the form of a table, with the mark …. The id of a node
// may also be shortened to its beginning.
func completeProcess(text string, all []api.WorkerInfo) (string, error) {
	marked := strings.Contains(text, cutMark)
	var ids []string
	for i := range all {
		w := &all[i]
		if text == w.Host || text == w.Name && text != "" {
			return text, nil
		}
		ids = append(ids, w.Node.String())
		if marked {
			ids = append(ids, w.Host)
		}
		if marked && w.Name != "" {
			ids = append(ids, w.Name)
		}
	}
	slices.Sort(ids)
	return complete("worker", text, slices.Compact(ids))
}

// add adds a worker of the process. It refuses a worker of another version. The workers that are
// connected to one server can have several versions, and then only their sessions say which worker
// offers what.
func (w *workerShape) add(a *api.WorkerInfo) error {
	var err error
	switch {
	case w.Worker == "":
	case w.Worker != a.Host:
		err = fault.New(fault.Invalid, "worker %s is ambiguous: the processes %s and %s have it", a.Name, w.Worker, a.Host)
	case w.Version != "" && a.Version != "" && w.Version != a.Version:
		err = fault.New(fault.Invalid, "worker %s is ambiguous: it has workers of the versions %s and %s", a.Host, w.Version, a.Version)
	}
	if err != nil {
		return fault.WithHint(err, "name a session of perdure worker sessions, or a name or node of perdure worker list -o json")
	}

	// Code of Perdure itself, such as that of schedules, has no version.
	w.Worker, w.Node, w.Version = a.Host, a.Node.String(), cmp.Or(w.Version, a.Version)
	if a.Name != "" {
		w.Names = append(w.Names, a.Name)
	}
	switch {
	case !a.Draining:
		w.State = "serves"
	case w.State == "":
		w.State = "drains" // all workers so far drain
	}

	w.Workflows, w.Entities = union(w.Workflows, a.Workflows), union(w.Entities, entityWords(a.Entities))
	w.Queues, w.Activities = union(w.Queues, a.Queues), union(w.Activities, a.Activities)
	w.Limits, w.Breakers = union(w.Limits, a.Limits), union(w.Breakers, a.Breakers)
	w.Slots, w.Alike = w.Slots+a.Slots, w.Alike+a.Alike
	return nil
}

// union returns the names of both lists in order, each once.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// printWorker prints one worker.
func (o *options) printWorker(w *workerShape) error {
	if o.structured() {
		return o.json(w)
	}
	list := func(names []string) string { return dash(strings.Join(names, ", ")) }
	rows := [][]string{
		{"Worker", w.Worker},
		{"Name", list(w.Names)},
		{"Tenant", w.Tenant},
		{"Version", dash(w.Version)},
		{"State", w.State},
		{"Since", stamp(w.since)},
		{"Workflows", list(w.Workflows)},
		{"Entities", list(w.Entities)},
		{"Queues", list(w.Queues)},
		{"Activities", list(w.Activities)},
		{"Slots", number(w.Slots)},
	}

	if w.Node != "" {
		rows = append(rows, []string{"Node", w.Node}, []string{"Limits", list(w.Limits)}, []string{"Breakers", list(w.Breakers)})
	}
	if w.Alike > 0 {
		rows = append(rows, []string{"Workers", strconv.Itoa(w.Alike+1) + " that offer the same"})
	}
	if h := w.Holds; h != nil {
		rows = append(rows, []string{"Caller", w.Caller}, []string{"Heard", stamp(w.heard)},
			[]string{"Holds", fmt.Sprintf("executions %d, calls of entities %d, tasks %d", h.Runs, h.Calls, h.Tasks)})
	}
	return o.table("", rows)
}
