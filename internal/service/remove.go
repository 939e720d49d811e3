package service

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// rawHeader is the first line of a file of raw rows. docs/operating.md describes the format.
type rawHeader struct {
	Perdure  string `json:"perdure"`
	Format   int    `json:"format"`
	Tenant   string `json:"tenant"`
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Shard    uint16 `json:"shard"`
	Store    string `json:"store"`
}

// remove takes an execution away that nothing else can end: its rows are exported as they stand, the locks that it holds are freed, and its owner removes the rows in one commit. Every part may
// be repeated, so a removal that failed half-way is made again.
func (s *Service) remove(ctx context.Context, r *api.DeleteRequest) (api.DeleteReply, error) {
	a := r.Target.Address
	v := s.check("delete")
	v.address(a)
	if r.Export == nil && !r.DryRun {
		v.wrong("a removal by force needs somewhere to export the rows to")
	}
	if err := v.err(); err != nil {
		return api.DeleteReply{}, err
	}
	runs, err := s.exportRaw(ctx, r)
	switch {
	case err != nil:
		return api.DeleteReply{}, err
	case len(runs) == 0:
		return api.DeleteReply{}, fault.New(fault.NotFound, "execution %s does not exist", a)
	case r.DryRun:
		return api.DeleteReply{Runs: runs}, nil
	}
	// One that can still be ended in order is: its parent, its watchers and its locks hear of it.
	end := api.CancelRequest{Target: r.Target, Reason: "removed by an operator"}
	if err := s.order(ctx, model.MessageTerminate, &end); err == nil || fault.Is(err, fault.Conflict) {
		end.Reason = ""
	} else if !fault.Is(err, fault.Blocked) && !fault.Is(err, fault.Corrupt) && !fault.Is(err, fault.NotFound) {
		return api.DeleteReply{}, err
	}
	if err := s.unlockAll(ctx, a, runs); err != nil {
		return api.DeleteReply{}, err
	}
	m := &model.Message{Kind: model.MessageDelete, To: a, ToRun: r.Target.Run, Runs: runs, Force: true, RequestID: r.RequestID}
	if end.Reason != "" {
		m.Parent = s.parentOf(ctx, r.Target)
	}
	if _, err := s.send(ctx, m); err != nil {
		return api.DeleteReply{}, err
	}
	return api.DeleteReply{Runs: runs}, nil
}

// exportRaw writes the rows of an execution as JSON lines and returns its runs.
func (s *Service) exportRaw(ctx context.Context, r *api.DeleteRequest) (runs []model.RunID, err error) {
	a, shard := r.Target.Address, s.shard(r.Target.Address)
	var lines *json.Encoder
	if r.Export != nil {
		lines = json.NewEncoder(r.Export)
	}
	line := func(v any) error {
		if lines == nil {
			return nil
		}
		if err := lines.Encode(v); err != nil {
			return fault.New(fault.Unavailable, "export of the rows of %s: %w", a, err)
		}
		return nil
	}
	err = s.store.ReadRaw(ctx, shard, a, r.Target.Run, func(row store.RawRow) error {
		if len(runs) == 0 {
			head := rawHeader{Perdure: "raw rows", Format: 1, Tenant: a.Tenant, Workflow: a.Type, Key: a.Key, Shard: uint16(shard), Store: s.store.Info().URL}
			if err := line(head); err != nil {
				return err
			}
		}
		if row.Table == "executions" {
			runs = append(runs, row.Run)
		}
		return line(row)
	})
	return runs, err
}

// unlockAll frees what runs of an address hold. Which entities that is only the entities themselves tell, because the history cannot be read.
func (s *Service) unlockAll(ctx context.Context, a model.Address, runs []model.RunID) error {
	q := store.EntityQuery{Tenant: a.Tenant, Locked: true, Limit: 500}
	for {
		page, err := s.store.ListEntities(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Entities {
			n := &page.Entities[i]
			if n.Holder.Address != a || !slices.Contains(runs, n.Holder.Run) {
				continue
			}
			err := s.Unlock(ctx, api.UnlockRequest{Address: n.Address, Epoch: n.Epoch})
			if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.Blocked) {
				return err // else it was freed meanwhile, or cannot be read itself
			}
		}
		if !page.More {
			return nil
		}
		q.After = page.Entities[len(page.Entities)-1].Address
	}
}

// parentOf is the step that waits for an execution, as far as its start can be read.
func (s *Service) parentOf(ctx context.Context, t api.Target) model.Link {
	row, err := s.store.LoadExecution(ctx, s.shard(t.Address), t.Address, t.Run)
	if err != nil || row == nil || row.Outcome.Status.Closed() {
		return model.Link{}
	}
	return row.Start.Parent
}

// wayOut adds what an operator can do to the error of an execution that cannot be read or continued.
func wayOut(err error) error {
	if fault.Is(err, fault.Corrupt) {
		return fault.WithHint(err, "%s", model.WayOut)
	}
	return err
}
