package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

func newNode(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Nodes of the cluster", Example: "  perdure node list"}
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "List the nodes of the cluster", Args: cobra.NoArgs, Example: "  perdure node list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.listNodes(cmd.Context()) },
	})
	return cmd
}

func (o *options) printNodes(nodes []api.NodeInfo) error {
	type line struct {
		Node    string   `json:"node"`
		Host    string   `json:"host"`
		Version string   `json:"version,omitempty"`
		State   string   `json:"state"`
		Shards  int      `json:"shards"`
		Weight  int      `json:"weight,omitempty"`
		Groups  []string `json:"groups,omitempty"`
		Since   string   `json:"since"`
		Expires string   `json:"expires"`
		Address string   `json:"address,omitempty"`
		Self    bool     `json:"self,omitempty"`
	}

	const groupsColumn = 3
	grouped := slices.ContainsFunc(nodes, func(n api.NodeInfo) bool {
		return len(n.Groups) > 0 && !slices.Equal(n.Groups, []string{model.DefaultGroup})
	})
	lines, rows := make([]line, len(nodes)), make([][]string, len(nodes))
	for i, n := range nodes {
		state := "live"
		switch {
		case !n.Live:
			state = "expired"
		case n.Draining, n.Drained && n.Shards > 0:
			state = "drains"
		case n.Drained:
			state = "drained"
		}
		lines[i] = line{n.ID.String(), n.Host, n.Version, state, n.Shards, n.Weight, n.Groups, when(n.Since), when(n.Expires), n.Address, n.Self}
		rows[i] = []string{n.Host, state, strconv.Itoa(n.Shards), weightWord(n.Weight), second(n.Since), dash(n.Version), dash(n.Address), n.ID.String()}
		if grouped {
			rows[i] = slices.Insert(rows[i], groupsColumn, dash(strings.Join(n.Groups, ", ")))
		}
	}
	if o.structured() {
		return o.json(lines)
	}
	if grouped {
		return o.table("HOST\tSTATE\tSHARDS\tGROUPS\tWEIGHT?\tSINCE\tVERSION?\tADDRESS?\tNODE?", rows)
	}
	return o.table("HOST\tSTATE\tSHARDS\tWEIGHT?\tSINCE\tVERSION?\tADDRESS?\tNODE?", rows)
}

// weightWord returns the weight of a node as text. A node of an older version has no weight.
func weightWord(weight int) string {
	if weight == 0 {
		return "-"
	}
	return strconv.Itoa(weight)
}

// sessionShape is a connected worker in JSON.
type sessionShape struct {
	Session    string   `json:"session"`
	Tenant     string   `json:"tenant"`
	Agent      string   `json:"agent,omitempty"`
	Caller     string   `json:"caller"`
	Name       string   `json:"name,omitempty"`
	State      string   `json:"state"`
	Workflows  []string `json:"workflows,omitempty"`
	Entities   []string `json:"entities,omitempty"`
	Queues     []string `json:"queues,omitempty"`
	Activities []string `json:"activities,omitempty"`
	Slots      int      `json:"slots,omitempty"`
	Since      string   `json:"since"`
	Heard      string   `json:"heard"`
	Runs       int      `json:"runs"`
	Calls      int      `json:"calls"`
	Tasks      int      `json:"tasks"`
}

func shapeSession(w *api.WorkerSession) sessionShape {
	state := "connected"
	switch {
	case w.Draining:
		state = "drains"
	case !w.Connected:
		state = "away"
	}
	return sessionShape{
		Session: w.ID, Tenant: w.Tenant, Agent: w.Agent, Caller: w.Caller, Name: w.Name, State: state, Workflows: w.Workflows, Entities: entityWords(w.Entities),
		Queues: w.Queues, Activities: w.Activities, Slots: w.Slots, Since: when(w.Since), Heard: when(w.Heard), Runs: w.Runs, Calls: w.Calls, Tasks: w.Tasks,
	}
}

// does says in one line what the worker runs.
func (s *sessionShape) does() string {
	var parts []string
	if len(s.Workflows) > 0 {
		parts = append(parts, "workflows "+strings.Join(s.Workflows, ", "))
	}
	if len(s.Entities) > 0 {
		parts = append(parts, "entities "+strings.Join(s.Entities, ", "))
	}
	if len(s.Queues) > 0 {
		parts = append(parts, fmt.Sprintf("queues %s: %s", strings.Join(s.Queues, ", "), strings.Join(s.Activities, ", ")))
	}
	return strings.Join(parts, "; ")
}

func newWorkerSessions(o *options) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "sessions", Short: "List the workers that are connected to a server, and what they hold", Args: cobra.NoArgs,
		Long:    "List the workers that are connected to a server, and what they hold. Only that server knows them, so the command needs a server instead of a store, and an admin key.",
		Example: "  perdure worker sessions --server grpc://host:7800",
		RunE: func(cmd *cobra.Command, _ []string) error {
			tenant := o.tenant
			if all {
				tenant = ""
			}
			return o.withAdmin(cmd.Context(), true, func(a api.Admin) error {
				found, err := a.WorkerSessions(cmd.Context(), tenant)
				if err != nil {
					return err
				}

				list, rows := make([]sessionShape, len(found)), make([][]string, len(found))
				for i := range found {
					s := shapeSession(&found[i])
					list[i] = s
					rows[i] = []string{
						s.Session, s.State, strconv.Itoa(s.Runs), strconv.Itoa(s.Calls), strconv.Itoa(s.Tasks), second(found[i].Heard), s.Tenant, dash(s.Agent), s.Caller, s.does(),
					}
				}

				if o.structured() {
					return o.json(list)
				}
				return o.table("SESSION\tSTATE\tRUNS\tCALLS\tTASKS\tHEARD\tTENANT?\tAGENT?\tCALLER?\tWHAT?", rows)
			})
		},
	}

	cmd.Flags().BoolVar(&all, "all", false, "workers of all tenants")
	return cmd
}

func newWorkerDrain(o *options) *cobra.Command {
	var within time.Duration
	cmd := &cobra.Command{
		Use: "drain session", Short: "Ask a connected worker to finish what it runs and to connect again", Args: cobra.ExactArgs(1),
		Long: `Ask a worker that is connected to a server to finish what it runs. The worker takes nothing new on this connection. Then it connects again, to another server if it knows one.

After --within the server takes back what the worker still holds, and others continue it.`,
		Example: "  perdure worker drain session_K7X2M9QF --server grpc://host:7800",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withAdmin(cmd.Context(), false, func(a api.Admin) error {
				all, err := a.WorkerSessions(cmd.Context(), "")
				if err != nil {
					return err
				}
				ids := make([]string, len(all))
				for i := range all {
					ids[i] = all[i].ID
				}
				id, err := complete("worker", args[0], ids)
				if err != nil {
					return err
				}

				if err := a.DrainWorker(cmd.Context(), api.DrainRequest{Session: id, Patience: within}); err != nil {
					return err
				}
				return o.printDone("asked to drain worker", id)
			})
		},
	}
	cmd.Flags().Var(span(&within, 30*time.Second), "within", "how long the worker may take")
	return cmd
}
