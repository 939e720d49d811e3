package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// groupShape is a shard group in JSON.
type groupShape struct {
	Group  string `json:"group"`
	Shards int    `json:"shards"`
	// Owned is how many of the shards have a live owner.
	Owned int `json:"owned"`
	// Nodes are the live nodes that serve the group.
	Nodes []string `json:"nodes"`
}

func newClusterGroups(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "groups", Short: "List the shard groups and the nodes that serve them", Args: cobra.NoArgs,
		Long: `List the shard groups and the nodes that serve them. The name of a workflow, entity or service chooses a group: render@gpu belongs to the group gpu.
Nodes say which groups they serve (perdure serve --groups). What belongs to a group that no live node serves waits until one does.

Add groups with perdure migrate --groups.`,
		Example: "  perdure cluster groups",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withAdmin(cmd.Context(), true, func(a api.Admin) error {
				nodes, shards, err := loadPlacement(cmd.Context(), a)
				if err != nil {
					return err
				}
				groups := countGroups(nodes, shards)
				if o.structured() {
					return o.json(groups)
				}

				rows := make([][]string, len(groups))
				for i := range groups {
					g := &groups[i]
					rows[i] = []string{g.Group, strconv.Itoa(g.Shards), strconv.Itoa(g.Owned), dash(strings.Join(g.Nodes, ", "))}
				}
				return o.table("GROUP\tSHARDS\tOWNED\tNODES", rows)
			})
		},
	}
}

// splitList returns the names in a text that separates them by commas.
func splitList(text string) (names []string) {
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// countGroups returns the groups in the order of the ids of their shards.
func countGroups(nodes []api.NodeInfo, shards []api.ShardInfo) []groupShape {
	groups := []groupShape{}
	for i := range shards {
		s := &shards[i]
		name := orText(s.Group, model.DefaultGroup)
		if n := len(groups); n == 0 || groups[n-1].Group != name {
			groups = append(groups, groupShape{Group: name, Nodes: serversOf(nodes, name)})
		}
		g := &groups[len(groups)-1]
		g.Shards++
		if slices.ContainsFunc(nodes, func(n api.NodeInfo) bool { return n.ID == s.Owner && n.Live }) {
			g.Owned++
		}
	}
	return groups
}

// serversOf returns the live nodes that serve a group.
func serversOf(nodes []api.NodeInfo, group string) []string {
	hosts := []string{}
	for i := range nodes {
		info := store.NodeInfo{Groups: nodes[i].Groups}
		if nodes[i].Live && info.TakesGroup(group) {
			hosts = append(hosts, nodes[i].Host)
		}
	}
	return hosts
}

// unservedGroups returns the groups that no live node serves.
func unservedGroups(groups []groupShape) []groupShape {
	return slices.DeleteFunc(slices.Clone(groups), func(g groupShape) bool { return len(g.Nodes) > 0 })
}

// printUnserved says which groups no live node serves.
func (o *options) printUnserved(groups []groupShape) error {
	for _, g := range groups {
		if _, err := fmt.Fprintf(o.Out, "no live node serves the shard group %s; its %d shards have no owner\n", g.Group, g.Shards); err != nil {
			return err
		}
	}
	return nil
}

// hasGroups reports whether some of the shards belong to a group other than the default one.
func hasGroups(shards []api.ShardInfo) bool {
	return slices.ContainsFunc(shards, func(s api.ShardInfo) bool { return s.Group != "" && s.Group != model.DefaultGroup })
}

// groupFindings returns the checks of the shard groups. A store with one group needs no such
// checks, because the checks of nodes cover it.
func groupFindings(groups []groupShape) []finding {
	if len(groups) < 2 {
		return nil
	}
	var found []finding
	for _, g := range unservedGroups(groups) {
		found = append(found, finding{"groups", "problem", fmt.Sprintf("no live node serves the shard group %s; what belongs to its %d shards waits", g.Group, g.Shards)})
	}
	if len(found) > 0 {
		return found
	}
	names := make([]string, len(groups))
	for i := range groups {
		names[i] = groups[i].Group
	}
	return []finding{{"groups", "ok", fmt.Sprintf("live nodes serve all %d shard groups: %s", len(groups), strings.Join(names, ", "))}}
}
