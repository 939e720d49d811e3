package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func newCluster(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster", Short: "Nodes and shards of the cluster",
		Long:    `Nodes and shards of the cluster. Each execution and entity belongs to a shard, and each shard to one node. On a server these commands need an admin key.`,
		Example: "  perdure cluster nodes\n  perdure cluster drain shop-1.example.com",
	}
	cmd.AddCommand(newClusterNodes(o), newClusterShards(o), newClusterGroups(o), newClusterDrain(o), newClusterUndrain(o), newClusterRebalance(o))
	return cmd
}

func newClusterNodes(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "nodes", Short: "List the nodes of the cluster", Args: cobra.NoArgs, Example: "  perdure cluster nodes -o json",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.listNodes(cmd.Context()) },
	}
}

func (o *options) listNodes(ctx context.Context) error {
	return o.withAdmin(ctx, true, func(a api.Admin) error {
		nodes, err := a.Nodes(ctx)
		if err != nil {
			return err
		}
		return o.printNodes(nodes)
	})
}

func newClusterShards(o *options) *cobra.Command {
	var of string
	cmd := &cobra.Command{
		Use: "shards", Short: "List the shards, their owners, and where they should be", Args: cobra.NoArgs,
		Example: "  perdure cluster shards\n  perdure cluster shards --node shop-1.example.com",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withAdmin(cmd.Context(), true, func(a api.Admin) error {
				nodes, shards, err := loadPlacement(cmd.Context(), a)
				if err != nil {
					return err
				}
				if of != "" {
					n, err := findNode(of, nodes)
					if err != nil {
						return err
					}
					shards = slices.DeleteFunc(shards, func(s api.ShardInfo) bool { return s.Owner != n.ID })
					return o.printShards(nodes, shards)
				}

				if err := o.printShards(nodes, shards); err != nil || o.structured() || len(nodes) == 0 {
					return err
				}
				return o.printUnserved(unservedGroups(countGroups(nodes, shards)))
			})
		},
	}
	cmd.Flags().StringVar(&of, "node", "", "only shards of this node: its id or its host")
	return cmd
}

func loadPlacement(ctx context.Context, a api.Admin) ([]api.NodeInfo, []api.ShardInfo, error) {
	nodes, err := a.Nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	shards, err := a.Shards(ctx)
	return nodes, shards, err
}

// findNode returns the node that a text names: by its id, by the beginning of its id, by its host
// and process, or by its host alone.
func findNode(text string, nodes []api.NodeInfo) (*api.NodeInfo, error) {
	var found []*api.NodeInfo
	for i := range nodes {
		n := &nodes[i]
		id, host := n.ID.String(), n.Host
		machine := host
		if at := strings.LastIndex(host, ":"); at > 0 {
			machine = host[:at]
		}
		switch {
		case id == text || host == text:
			return n, nil
		case machine == text, len(text) >= len("node_")+4 && strings.HasPrefix(id, text):
			found = append(found, n)
		}
	}

	switch len(found) {
	case 0:
		return nil, fault.WithHint(fault.New(fault.NotFound, "there is no node %.100q", text), "see perdure cluster nodes; a node gets another id when it starts again")
	case 1:
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, n := range found {
		names[i] = n.Host
	}
	return nil, fault.New(fault.Invalid, "%.100q is more than one node: %s", text, strings.Join(names, ", "))
}

// shardShape is a shard in JSON.
type shardShape struct {
	Shard    int    `json:"shard"`
	Group    string `json:"group,omitempty"`
	Database string `json:"database,omitempty"`
	Owner    string `json:"owner,omitempty"`
	Target   string `json:"target,omitempty"`
	Moves    bool   `json:"moves"`
}

func shapeShard(s *api.ShardInfo) shardShape {
	shape := shardShape{Shard: int(s.Shard), Group: s.Group, Database: s.Database, Moves: s.Owner != s.Target}
	if !s.Owner.IsZero() {
		shape.Owner = s.Owner.String()
	}
	if !s.Target.IsZero() {
		shape.Target = s.Target.String()
	}
	return shape
}

func (o *options) printShards(nodes []api.NodeInfo, shards []api.ShardInfo) error {
	host := func(id model.NodeID) string {
		i := slices.IndexFunc(nodes, func(n api.NodeInfo) bool { return n.ID == id })
		switch {
		case id.IsZero():
			return "-"
		case i < 0: // the node has joined after the nodes were listed
			return id.String()
		}
		return nodes[i].Host
	}

	head, groups := "SHARD\tOWNER\tSHOULD BE AT", hasGroups(shards)
	databases := slices.ContainsFunc(shards, func(s api.ShardInfo) bool { return s.Database != "" })
	if groups {
		head += "\tGROUP"
	}
	if databases {
		head += "\tDATABASE"
	}

	lines, rows := make([]shardShape, len(shards)), make([][]string, len(shards))
	for i := range shards {
		s := &shards[i]
		lines[i] = shapeShard(s)
		rows[i] = []string{strconv.Itoa(int(s.Shard)), host(s.Owner), host(s.Target)}
		if groups {
			rows[i] = append(rows[i], s.Group)
		}
		if databases {
			rows[i] = append(rows[i], dash(s.Database))
		}
	}
	if o.structured() {
		return o.json(lines)
	}
	return o.table(head, rows)
}

func newClusterDrain(o *options) *cobra.Command {
	var within time.Duration
	var noWait bool
	cmd := &cobra.Command{
		Use: "drain node", Short: "Ask a node to hand its shards over and to take no others", Args: cobra.ExactArgs(1),
		Long: `Ask a node to hand its shards over and to take no others. The other nodes take them, and no call fails. The node stays in the cluster: it passes requests on
to the owners, and its workers continue to execute tasks. The order holds until "perdure cluster undrain" or until the process ends.

The command waits until the node owns no shard. The node is its id, the beginning of its id, its host and process, or its host.`,
		Example: "  perdure cluster drain shop-1.example.com\n  perdure cluster drain node_0K7X2M9Q --within 5m",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withAdmin(cmd.Context(), false, func(a api.Admin) error {
				nodes, err := a.Nodes(cmd.Context())
				if err != nil {
					return err
				}
				n, err := findNode(args[0], nodes)
				if err != nil {
					return err
				}

				if err := a.DrainNode(cmd.Context(), api.NodeDrain{Node: n.ID}); err != nil {
					return err
				}
				if noWait {
					return o.printDone("asked to drain node", n.ID.String())
				}
				if err := awaitDrained(cmd.Context(), a, n.ID, within); err != nil {
					return err
				}
				return o.printDone("drained node", n.ID.String())
			})
		},
	}
	cmd.Flags().Var(span(&within, time.Minute), "within", "how long to wait until the node owns no shard")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the order is stored")
	return cmd
}

// drainPoll is how often the command checks whether a node has handed its shards over.
const drainPoll = 200 * time.Millisecond

// awaitDrained waits until a node owns no shard.
func awaitDrained(ctx context.Context, a api.Admin, id model.NodeID, within time.Duration) error {
	over := time.After(within)
	for {
		nodes, err := a.Nodes(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(nodes, func(n api.NodeInfo) bool { return n.ID == id })
		switch {
		case i < 0:
			return fault.WithHint(fault.New(fault.Conflict, "node %s has left the cluster; a process that lives gets another id when it has lost its lease", id),
				"see perdure cluster nodes")
		case nodes[i].Shards == 0:
			return nil
		}

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over:
			return fault.WithHint(fault.New(fault.Timeout, "node %s still owns %d shards after %s; it continues to hand them over", id, nodes[i].Shards, within),
				"see perdure cluster rebalance --dry-run")
		case <-time.After(drainPoll):
		}
	}
}

func newClusterUndrain(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "undrain node", Short: "Let a node take shards again", Args: cobra.ExactArgs(1), Example: "  perdure cluster undrain shop-1.example.com",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withAdmin(cmd.Context(), false, func(a api.Admin) error {
				nodes, err := a.Nodes(cmd.Context())
				if err != nil {
					return err
				}
				n, err := findNode(args[0], nodes)
				if err != nil {
					return err
				}
				if err := a.DrainNode(cmd.Context(), api.NodeDrain{Node: n.ID, Undo: true}); err != nil {
					return err
				}
				return o.printDone("undrained node", n.ID.String())
			})
		},
	}
}

func newClusterRebalance(o *options) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use: "rebalance", Short: "Make the nodes check immediately whether shards should move", Args: cobra.NoArgs,
		Long: `Make all nodes check immediately whether shards should move, and print the shards that do. The nodes also do so by themselves every few seconds.

With --dry-run the command only prints which shards would move where. Nothing moves while every shard is where it should be.`,
		Example: "  perdure cluster rebalance --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withAdmin(cmd.Context(), dry, func(a api.Admin) error {
				nodes, shards, err := loadPlacement(cmd.Context(), a)
				if err != nil {
					return err
				}

				all, unserved := len(shards), unservedGroups(countGroups(nodes, shards))
				shards = slices.DeleteFunc(shards, func(s api.ShardInfo) bool { return s.Owner == s.Target })
				if !dry {
					if err := a.Rebalance(cmd.Context()); err != nil {
						return err
					}
				}
				if len(nodes) == 0 && !o.structured() {
					_, err := fmt.Fprintf(o.Out, "no node is running; the %d shards have no owner\n", all)
					return err
				}

				if o.structured() {
					return o.printShards(nodes, shards)
				}
				if err := o.printUnserved(unserved); err != nil {
					return err
				}
				for _, g := range unserved {
					all -= g.Shards
				}
				if len(shards) == 0 {
					_, err := fmt.Fprintf(o.Out, "all %d shards are where they should be\n", all)
					return err
				}
				return o.printShards(nodes, shards)
			})
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only print which shards would move where")
	return cmd
}
