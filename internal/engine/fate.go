package engine

import (
	"context"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// fateOf finds out whether and how a claim has ended. It reads the events that follow the claim in
// the history of the run.
func fateOf(ctx context.Context, st store.Store, shard model.ShardID, ref model.ClaimRef) (core.Fate, error) {
	x, err := st.LoadExecution(ctx, shard, ref.Address, ref.Run)
	if err != nil || x == nil {
		return core.Fate{Over: err == nil}, err // the run was deleted
	}
	var f core.Fate

	alone := x.Start.Task != nil
	for after := max(ref.Claim, int64(len(x.Start.Carried))); ; {
		page, err := st.LoadEvents(ctx, store.RunKey{Shard: shard, Run: ref.Run}, after, eventPage, eventPageBytes)
		if err != nil {
			return core.Fate{}, err
		}
		if len(page) == 0 || f.Follow(&ref, alone, page) {
			break
		}
		after = page[len(page)-1].Seq
	}

	f.End(&ref, alone, &x.Outcome)
	return f, nil
}
