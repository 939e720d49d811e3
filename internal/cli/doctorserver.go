package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/node"
)

// examineServer checks a server over the network. It needs an admin key.
func (o *options) examineServer(ctx context.Context) ([]finding, error) {
	var found []finding
	err := o.withAdmin(ctx, true, func(a api.Admin) error {
		sent := time.Now()
		health, err := a.Health(ctx)
		if err != nil {
			return err
		}
		found = append(found, healthFinding(&health))
		for _, w := range health.Warnings {
			found = append(found, finding{"server", "warning", w})
		}
		found = append(found, storeFindings(&health, sent, time.Now())...)
		nodes, err := a.Nodes(ctx)
		if err != nil {
			return err
		}
		found = append(found, nodeFinding(nodes))
		shards, err := a.Shards(ctx)
		if err != nil {
			return err
		}
		found = append(found, groupFindings(countGroups(nodes, shards))...)
		sessions, err := a.WorkerSessions(ctx, "")
		if err != nil {
			return err
		}
		found = append(found, sessionFinding(sessions))

		stuck, err := allTenantFindings(ctx, a, true, func(tenant string) (api.Backend, func() error, error) {
			s, err := o.lookAs(ctx, tenant)
			if err != nil {
				return nil, nil, err
			}
			return s.Backend(), s.Close, nil
		})
		found = append(found, stuck...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// lookAs opens the store for reading in another tenant.
func (o *options) lookAs(ctx context.Context, tenant string) (session, error) {
	c := node.Config{URL: o.store, Schema: o.schema, Databases: o.databaseURLs(), ReadOnly: true, Log: o.log(), Version: Version()}
	s, err := o.connectTo(ctx, c, scope{tenant: tenant, chosen: tenant})
	if err != nil {
		return nil, fmt.Errorf("tenant %s: %w", tenant, err)
	}
	return s, nil
}

func healthFinding(h *api.Health) finding {
	if !h.Ready {
		return finding{"server", "problem", "not ready: " + strings.Join(h.Reasons, "; ")}
	}
	return finding{"server", "ok", fmt.Sprintf("ready, version %s, %d connected workers", orText(h.Version, "unknown"), h.Workers)}
}

func nodeFinding(nodes []api.NodeInfo) finding {
	live, shards, drained := 0, 0, 0
	for i := range nodes {
		if nodes[i].Live {
			live++
			shards += nodes[i].Shards
			if nodes[i].Drained {
				drained++
			}
		}
	}
	if live < len(nodes) {
		return finding{"nodes", "warning", fmt.Sprintf("%d alive with %d shards, %d with an expired lease that no node took over", live, shards, len(nodes)-live)}
	}
	return drainFinding(live, drained, fmt.Sprintf("%d alive with %d shards", live, shards))
}

// drainFinding is the finding about live nodes that operators have drained.
func drainFinding(live, drained int, text string) finding {
	switch drained {
	case 0:
		return finding{"nodes", "ok", text}
	case live:
		return finding{"nodes", "warning", text + ", all of them drained; they keep their shards until another node joins or perdure cluster undrain"}
	}
	return finding{"nodes", "ok", fmt.Sprintf("%s, %d of them drained", text, drained)}
}
