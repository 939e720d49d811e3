package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// While remote workers come back, the board keeps the claims of workers that are not back yet. When
// no remote worker has joined for the time of a reunion, the claims of the missing workers are
// lost. A worker of this process that joins does not make the reunion longer.
func TestBoardWaitsWhileRemoteWorkersJoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		eng := New(Config{Store: memory.New(memory.Options{}), Lane: lane.Config{Reunion: 5 * time.Second}})
		inc := &incarnation{eng: eng}
		inc.board = newBoard(inc)
		defer inc.board.close()

		join := func(name string) {
			inc.board.enlist(eng.taskSession(noWorker{}, model.TaskOffer{Name: name, Tenants: []string{"default"}}, model.NodeID{}))
		}
		awaited := model.RemoteWorkerName("w", "default", "late") + "@node"
		want := func(kept bool) {
			t.Helper()
			if got := inc.board.Elsewhere(awaited); got != kept {
				t.Fatalf("the claim is kept: %v, want %v", got, kept)
			}
		}

		want(false)
		inc.board.reunite(5 * time.Second)
		for i := range 4 {
			time.Sleep(4 * time.Second)
			join(model.RemoteWorkerName("w", "default", fmt.Sprint(i)))
			want(true)
		}
		time.Sleep(4 * time.Second)
		join("local")
		want(true)
		time.Sleep(time.Second)
		want(false)

		inc.board.reunite(5 * time.Second)
		for i := range 8 {
			want(true)
			time.Sleep(4 * time.Second)
			join(model.RemoteWorkerName("w", "default", fmt.Sprint("again", i)))
		}
		want(false)
	})
}

// The worker of a claim is not back yet, and another remote worker sends a heartbeat for the claim.
// The claim does not go to that worker.
func TestHeartbeatsTakeNoClaims(t *testing.T) {
	t.Parallel()
	eng := New(Config{Store: memory.New(memory.Options{}), Lane: lane.Config{Reunion: time.Minute}})
	inc := &incarnation{eng: eng}
	b := newBoard(inc)
	inc.board = b
	defer b.close()
	join := func(id string) *TaskSession {
		s := eng.taskSession(noWorker{}, model.TaskOffer{Name: model.RemoteWorkerName("w", "default", id), Tenants: []string{"default"}, Slots: 1}, model.NodeID{})
		b.enlist(s)
		return s
	}

	it := workItem(1)
	claim := model.ClaimRef{TaskRef: it.Ref, Claim: 3}
	b.Hold(eng.clock.now(), it, claim.Claim, 0, "w~away@node")
	thief, owner := join("thief"), join("owner")
	b.Beat(thief.id, claim)
	if b.b.IsAssigned(claim) {
		t.Fatal("the heartbeat of a worker has taken the claim")
	}
	b.Hold(eng.clock.now(), it, claim.Claim, owner.id, "w~away@node")
	if b.Beat(thief.id, claim) || !b.Beat(owner.id, claim) {
		t.Error("the claim is not that of its owner")
	}
}

// A node acquires a shard of another process that has died, and the answer is lost. At the next
// attempt the node is already the owner. It still knows that it has not served the shard, and that
// the last owner has died, possibly because of a call. After that, a shard is foreign only if
// another process has served it since. A shard that its owner has given up is no orphan.
func TestForeignShardsAfterALostAnswer(t *testing.T) {
	t.Parallel()
	other, self := model.NodeID{1}, model.NodeID{2}
	eng := New(Config{Store: memory.New(memory.Options{})})
	eng.lives[self] = true
	inc := &incarnation{eng: eng, self: store.NodeInfo{ID: self}}
	ownedBy := func(n model.NodeID) { inc.owners = []store.ShardOwner{{Shard: 3, Node: n}} }

	ownedBy(other)
	inc.noteForeign([]model.ShardID{3})
	ownedBy(self)
	inc.noteForeign([]model.ShardID{3})
	for i, want := range []bool{true, false, false} {
		if foreign, orphaned := inc.takeForeign(3); foreign != want || orphaned != want {
			t.Errorf("attempt %d: foreign is %v, and orphaned is %v, want %v", i, foreign, orphaned, want)
		}
	}

	ownedBy(other)
	inc.noteForeign([]model.ShardID{3})
	if foreign, orphaned := inc.takeForeign(3); !foreign || !orphaned {
		t.Error("a shard that another process has served is not foreign, or no orphan")
	}

	// Before the next attempt, the other process is alive and gives up the shard.
	inc.noteForeign([]model.ShardID{3})
	ownedBy(model.NodeID{})
	inc.noteForeign([]model.ShardID{3})
	if foreign, orphaned := inc.takeForeign(3); !foreign || orphaned {
		t.Errorf("a shard that its owner has given up: foreign %v, orphaned %v", foreign, orphaned)
	}

	// The last owner was an earlier incarnation of this process. The process is alive, so the shard
	// is no orphan, unless that incarnation has never served it.
	for _, orphan := range []bool{false, true} {
		if orphan {
			ownedBy(other)
			inc.noteForeign([]model.ShardID{3})
		}
		eng.lives[model.NodeID{4}] = true
		ownedBy(model.NodeID{4})
		inc.noteForeign([]model.ShardID{3})
		ownedBy(self)
		inc.noteForeign([]model.ShardID{3})
		if foreign, orphaned := inc.takeForeign(3); !foreign || orphaned != orphan {
			t.Errorf("a shard of an earlier incarnation: foreign %v, orphaned %v, want %v", foreign, orphaned, orphan)
		}
	}
}
