package service

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"

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
	Workflow string `json:"workflow,omitempty"`
	Entity   string `json:"entity,omitempty"`
	Key      string `json:"key"`
	Shard    uint16 `json:"shard"`
	Store    string `json:"store"`
}

// remove removes an execution that cannot be ended in another way, or an entity that cannot be
// read. It exports the rows as they are, terminates the execution if that is possible, frees its
// locks, and lets the owner remove the rows in one commit. Each of these steps can be repeated, so
// the caller can repeat a removal that failed half-way.
func (s *Service) remove(ctx context.Context, r *api.DeleteRequest) (api.DeleteReply, error) {
	a := r.Target.Address
	v := s.check("delete")
	if a.IsEntity() {
		v.Entity(a)
	} else {
		v.Address(a)
	}

	if r.Export == nil && !r.DryRun {
		v.Wrong("a removal by force needs a destination for the export of the rows")
	}
	if err := v.Err(); err != nil {
		return api.DeleteReply{}, err
	}
	x := &rawExport{service: s, target: r.Target, to: r.Export}
	err := x.write(ctx)
	if err == nil {
		err = x.flush()
	}
	runs := x.runs

	switch {
	case err != nil:
		return api.DeleteReply{}, err
	case !x.begun && a.IsEntity():
		return api.DeleteReply{}, fault.New(fault.NotFound, "entity %s does not exist, and nothing waits for it", a)
	case !x.begun:
		return api.DeleteReply{}, fault.New(fault.NotFound, "execution %s does not exist", a)
	case r.DryRun:
		return api.DeleteReply{Runs: runs}, nil
	case a.IsEntity():
		_, err := s.send(ctx, &model.Message{Kind: model.MessageDelete, To: a, Force: true, Exported: x.print.Sum(), RequestID: r.RequestID})
		return api.DeleteReply{}, err
	}

	// If the execution can still be terminated, do that first. A termination informs its parent and
	// its watchers, and frees its locks.
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
		m.Parent = s.parentOf(ctx, r.Target).Pointer()
	}
	if _, err := s.send(ctx, m); err != nil {
		return api.DeleteReply{}, err
	}

	return api.DeleteReply{Runs: runs}, nil
}

// rawExport writes the rows of an execution or an entity as JSON lines.
type rawExport struct {
	service *Service
	target  api.Target
	to      io.Writer // nil for a dry run
	begun   bool      // the header line is written, so there are rows
	runs    []model.RunID
	print   store.Fingerprint
}

// write reads and writes everything.
func (x *rawExport) write(ctx context.Context) error {
	a := x.target.Address
	for _, run := range x.find(ctx) {
		err := x.service.store.ReadRaw(ctx, x.service.shard(a), a, run, x.row)
		if err != nil {
			return err
		}
	}
	return nil
}

// find returns the runs of the target. Runs name each other, so usually find gets the id of each
// run. If one of the runs cannot be read, find returns the zero run id instead of the ids. With the
// zero id, the store looks at every run of the shard.
func (x *rawExport) find(ctx context.Context) []model.RunID {
	t, all := x.target, []model.RunID{{}}
	if t.Address.IsEntity() || !t.Run.IsZero() {
		return []model.RunID{t.Run}
	}
	row, err := x.service.store.LoadExecution(ctx, x.service.shard(t.Address), t.Address, model.RunID{})
	if err != nil || row == nil {
		return all
	}
	runs, err := x.service.chain(ctx, row)
	if err != nil {
		return all
	}
	return runs
}

// row writes a row. Before the first one it writes a header line.
func (x *rawExport) row(row store.RawRow) error {
	if !x.begun {
		x.begun = true
		a, st := x.target.Address, x.service.store.Info()
		head := rawHeader{Perdure: "raw rows", Format: 1, Tenant: a.Tenant, Workflow: a.Type, Key: a.Key, Shard: uint16(x.service.shard(a)), Store: st.URL}
		if a.IsEntity() {
			head.Workflow, head.Entity = "", strings.TrimPrefix(a.Type, model.EntityPrefix)
		}
		if err := x.line(head); err != nil {
			return err
		}
	}

	x.print.Add(row)
	if row.Table == "executions" {
		x.runs = append(x.runs, row.Run)
	}
	return x.line(row)
}

func (x *rawExport) line(v any) error {
	if x.to == nil {
		return nil
	}
	return x.wrap(json.NewEncoder(x.to).Encode(v))
}

// flush flushes a buffered writer, before anything is removed.
func (x *rawExport) flush() error {
	to, buffered := x.to.(interface{ Flush() error })
	if !buffered {
		return nil
	}
	return x.wrap(to.Flush())
}

// wrap adds to an error the information that the export has failed. It returns nil for nil.
func (x *rawExport) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Unavailable, "export of the rows of %s: %w", x.target.Address, err)
}

// unlockAll frees the locks that runs of an address hold. Only the entities themselves know which
// locks these are, because the history cannot be read.
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
				// Ignore only the three kinds above: the lock is already free, or the entity cannot
				// be read.
				return err
			}
		}

		if !page.More {
			return nil
		}
		q.After = page.Entities[len(page.Entities)-1].Address
	}
}

// parentOf returns the step of the parent that waits for an execution, if the start of the
// execution can be read.
func (s *Service) parentOf(ctx context.Context, t api.Target) model.Link {
	row, err := s.store.LoadExecution(ctx, s.shard(t.Address), t.Address, t.Run)
	if err != nil || row == nil || row.Outcome.Status.Closed() {
		return model.Link{}
	}
	return row.Start.Parent
}

// wayOut adds a hint to the error of an execution that cannot be read. The hint says what an
// operator can do.
func wayOut(err error) error {
	if fault.Is(err, fault.Corrupt) && !strings.Contains(err.Error(), model.WayOut) {
		return fault.WithHint(err, "%s", model.WayOut)
	}
	return err
}

// stuck returns why an open execution cannot end normally. It returns nil if it knows no reason.
func (s *Service) stuck(ctx context.Context, op string, start *model.Start) error {
	a := start.Address
	d, err := s.Describe(ctx, api.Target{Address: a, Run: start.Run})
	if err != nil {
		if fault.Is(err, fault.Corrupt) {
			return wayOut(err)
		}
		return nil
	}
	for i := range d.Reasons {
		if code := d.Reasons[i].Code; code == model.WaitCorrupt || code == model.WaitPoison {
			return fault.WithHint(fault.New(fault.Blocked, "%s of %s: it %s", op, a, d.Reasons[i]), "%s", model.WayOut)
		}
	}
	return nil
}
