package api_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

func TestDeadIDs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := api.DeadID{Tenant: "acme", Shard: model.ShardID(rapid.IntRange(0, 1<<15-1).Draw(t, "shard")), Task: rapid.OneOf(rapid.Just(model.TaskStep), rapid.StringN(1, 40, -1)).Draw(t, "task")}
		copy(id.Run[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "run"))
		if back, err := api.ParseDeadID("acme", id.String()); err != nil || back != id {
			t.Fatalf("%s is read as %+v, %v; want %+v", id, back, err, id)
		}
	})
	for _, text := range []string{"", "dead_", "dead_1", "dead_x_06g5v0zkv0s00000000000000c", "dead_1_x", "run_06g5v0zkv0s00000000000000c", "dead_1_06g5v0zkv0s00000000000000c_", "dead_1_06g5v0zkv0s00000000000000c_!"} {
		if id, err := api.ParseDeadID("acme", text); err == nil {
			t.Errorf("%q is read as %+v", text, id)
		}
	}
}
