package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// versionShape is one version in JSON: the workers that run it, and what is pinned to it.
type versionShape struct {
	// Version is empty in the line of the executions that are not pinned.
	Version string `json:"version"`
	// Workers counts the live workers that run workflows. Several workers at one node count as one,
	// because a node announces each version once. Draining counts the workers whose node takes no
	// new work.
	Workers  int `json:"workers"`
	Draining int `json:"draining"`
	// Open counts the open executions that only this version continues.
	Open      int64           `json:"open"`
	Workflows []versionOpened `json:"workflows,omitempty"`

	byWorkflow map[string]int64
}

// versionOpened counts the open executions of one workflow that are pinned to a version.
type versionOpened struct {
	Workflow string `json:"workflow"`
	Open     int64  `json:"open"`
}

func newWorkerVersions(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "versions", Short: "List the versions of workers, and how many open executions are pinned to each", Args: cobra.NoArgs,
		Long: `List the versions of workers, and how many open executions are pinned to each.

Executions of a pinned workflow are continued only by workers of the version that started them. Before you stop the last worker of an old version, wait until no open execution is pinned to it. If you stop the worker earlier, these executions wait and lose nothing. They continue when a worker of the version runs again.

The command reads the history of every open execution, so it takes a while if there are many.`,
		Example: "  perdure worker versions\n  perdure worker versions -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := o.look(cmd.Context())
			if err != nil {
				return err
			}
			versions, err := o.countVersions(cmd.Context(), n.Backend())
			if err == nil {
				err = o.printVersions(versions)
			}
			return errors.Join(err, n.Close())
		},
	}
}

// countVersions returns a line for each version that a live worker runs or that an open execution
// is pinned to, sorted by version. The line of the executions that are not pinned comes first.
func (o *options) countVersions(ctx context.Context, b api.Backend) ([]*versionShape, error) {
	all := map[string]*versionShape{}
	of := func(version string) *versionShape {
		if all[version] == nil {
			all[version] = &versionShape{Version: version, byWorkflow: map[string]int64{}}
		}
		return all[version]
	}

	workers, err := b.ListWorkers(ctx, o.tenant)
	if err != nil {
		return nil, err
	}
	for i := range workers {
		w := &workers[i]
		if w.Version == "" || len(w.Workflows) == 0 {
			continue
		}
		of(w.Version).Workers += 1 + w.Alike
		if w.Draining {
			of(w.Version).Draining += 1 + w.Alike
		}
	}

	bar, looked := o.newProgress(), int64(0)
	defer bar.clear()
	req := api.ListRequest{Tenant: o.tenant, Statuses: []model.Status{model.Running}, Limit: 500, Versions: true}
	for {
		page, err := b.List(ctx, req)
		if err != nil {
			return nil, err
		}
		for i := range page.Executions {
			d := &page.Executions[i]
			if d.Start.Task != nil {
				continue // a standalone task needs no version of a workflow
			}
			v := of(d.Version)
			v.Open++
			v.byWorkflow[d.Start.Address.Type]++
		}
		looked += int64(len(page.Executions))
		bar.tell(looked, 0, fmt.Sprintf("read %d open executions", looked))
		if req.Cursor = page.Cursor; req.Cursor == "" {
			break
		}
	}

	for _, v := range all {
		for _, workflow := range slices.Sorted(maps.Keys(v.byWorkflow)) {
			v.Workflows = append(v.Workflows, versionOpened{workflow, v.byWorkflow[workflow]})
		}
	}
	// The list is not nil, so that no versions are [] in JSON.
	list := slices.AppendSeq(make([]*versionShape, 0, len(all)), maps.Values(all))
	slices.SortFunc(list, func(a, b *versionShape) int { return cmp.Compare(a.Version, b.Version) })
	return list, nil
}

func (o *options) printVersions(versions []*versionShape) error {
	if o.structured() {
		return o.json(versions)
	}
	rows := make([][]string, len(versions))
	for i, v := range versions {
		name, workers := v.Version, strconv.Itoa(v.Workers)
		if name == "" {
			name, workers = "not pinned", ""
		}
		rows[i] = []string{name, workers, strconv.FormatInt(v.Open, 10), v.state()}
	}
	return o.table("VERSION\tWORKERS\tOPEN\tSTATE", rows)
}

// state says what the numbers of a version mean for a person who deploys.
func (v *versionShape) state() string {
	switch {
	case v.Version == "":
		return "workers of any version continue them"
	case v.Workers == 0:
		return "no worker runs this version: its executions wait"
	case v.Open == 0 && v.Draining == v.Workers:
		return "drained: its workers can stop"
	case v.Draining == v.Workers:
		return "drains"
	case v.Open == 0:
		return "no execution needs this version"
	}
	return "serves"
}
