package diagnosis_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/diagnosis"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const now = model.Time(1_700_000_000_000_000)

func member(n byte, host string, lease model.Time, serves ...store.Served) store.Member {
	return store.Member{NodeInfo: store.NodeInfo{ID: model.NodeID{15: n}, Host: host, PID: int(n)}, Epoch: int64(n), Expires: now + lease, Serves: serves}
}

func canRun(workflow string) store.Served { return store.Served{Tenant: "default", Workflow: workflow} }

func pinned(workflow, version string) store.Served {
	return store.Served{Tenant: "default", Workflow: workflow, Version: version, Pinned: true}
}

// town returns a world with two live nodes and a dead one. Each of them owns a shard, and shard 3
// is free.
func town() *diagnosis.World {
	return diagnosis.NewWorld(store.View{
		Now: now,
		Members: []store.Member{
			member(1, "a", 10, canRun("order"), pinned("tax", "v1"), canRun("entity:box")),
			member(2, "b", 10, canRun("refund"), pinned("tax", "v2"), store.Served{Tenant: "default", Worker: "w", Queues: []string{"mails"}, Activities: []string{"mail"}}),
			member(3, "c", -1, canRun("old")),
		},
		Owners: []store.ShardOwner{
			{Shard: 0, Node: model.NodeID{15: 1}, Epoch: 1}, {Shard: 1, Node: model.NodeID{15: 2}, Epoch: 2}, {Shard: 2, Node: model.NodeID{15: 3}, Epoch: 3}, {Shard: 3},
		},
	})
}

func at(typ string) model.Address {
	return model.Address{Tenant: "default", Type: typ, Key: "k"}
}

// A problem that keeps every process from working on a run comes before the things that its code
// waits for. A run that no process can run is never called ready.
func TestJudge(t *testing.T) {
	t.Parallel()
	ready, signal := model.Reason{Code: model.WaitTurn}, model.Reason{Code: model.WaitSignal, Name: "word"}

	for name, c := range map[string]struct {
		run  diagnosis.Run
		want string
	}{
		"the owner has the code":          {diagnosis.Run{Address: at("order"), Waits: []model.Reason{signal}}, "waits for signal word"},
		"ready":                           {diagnosis.Run{Address: at("order"), Waits: []model.Reason{ready}}, "is running, or ready to"},
		"another node runs the code":      {diagnosis.Run{Shard: 1, Address: at("order"), Waits: []model.Reason{signal}}, "waits for signal word"},
		"another node has the code":       {diagnosis.Run{Shard: 1, Address: at("order"), Waits: []model.Reason{{Code: model.WaitWorker, Name: "order"}}}, "code of workflow order: b:2 (" + model.NodeID{15: 2}.String() + ") owns its shard and has no code for it, a:1 (" + model.NodeID{15: 1}.String() + ") has"},
		"a dead node had the code":        {diagnosis.Run{Address: at("old"), Waits: []model.Reason{signal}}, "waits for a worker that offers workflow old: no live process has its code | waits for signal word"},
		"no process has the version":      {diagnosis.Run{Address: at("tax"), Pin: "v3", Waits: []model.Reason{signal}}, "version v3 of workflow tax: no live process has its code | waits for signal word"},
		"another node has the version":    {diagnosis.Run{Address: at("tax"), Pin: "v2", Waits: []model.Reason{{Code: model.WaitWorker, Name: "tax"}}}, "waits for its owner to have the code of version v2 of workflow tax: a:1"},
		"the owner has the version":       {diagnosis.Run{Address: at("tax"), Pin: "v1", Waits: []model.Reason{signal}}, "waits for signal word"},
		"the owner is dead":               {diagnosis.Run{Shard: 2, Address: at("order"), Waits: []model.Reason{ready}}, "waits for a node to own shard 2: " + model.NodeID{15: 3}.String() + " owned it and has lost its lease"},
		"the shard is free":               {diagnosis.Run{Shard: 3, Address: at("order"), Waits: []model.Reason{ready}}, "waits for a node to own shard 3"},
		"damaged":                         {diagnosis.Run{Shard: 1, Address: at("order"), Waits: []model.Reason{{Code: model.WaitCorrupt, Detail: "row 1"}}}, "cannot be read: row 1"},
		"blocked, and its code is gone":   {diagnosis.Run{Address: at("old"), Waits: []model.Reason{{Code: model.WaitMismatch}}}, "offers workflow old: no live process has its code | is blocked"},
		"blocked, and its code is there":  {diagnosis.Run{Address: at("order"), Waits: []model.Reason{{Code: model.WaitMismatch}}}, "is blocked"},
		"a task needs no workflow":        {diagnosis.Run{Address: at("task:mail"), Task: &model.TaskSpec{}, Waits: []model.Reason{{Code: model.WaitLine, Name: "mails"}}}, "waits in line"},
		"an owner alone lacks the worker": {diagnosis.Run{Address: at("task:mail"), Task: &model.TaskSpec{}, Waits: []model.Reason{{Code: model.WaitWorker, Name: "mail", Detail: "queue mails, activity"}}}, "queue mails, activity mail"},
		"no process has the worker":       {diagnosis.Run{Address: at("order"), Waits: []model.Reason{{Code: model.WaitWorker, Name: "mail", Detail: "queue calls, activity"}}}, "queue calls, activity mail: no live process serves it"},
	} {
		var texts []string
		for _, r := range town().Judge(&c.run) {
			texts = append(texts, r.String())
		}
		if got := strings.Join(texts, " | "); !strings.Contains(got, c.want) || strings.Contains(got, "ready") != strings.Contains(c.want, "ready") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Several steps may wait for the same thing. That is one reason.
func TestJudgeNamesAReasonOnce(t *testing.T) {
	t.Parallel()
	bank, mail := model.Reason{Code: model.WaitPermit, Name: "bank"}, model.Reason{Code: model.WaitPermit, Name: "mail"}
	got := town().Judge(&diagnosis.Run{Address: at("order"), Waits: []model.Reason{bank, mail, bank}})
	if len(got) != 2 || got[0] != bank || got[1] != mail {
		t.Errorf("got %v", got)
	}
}

// For a store that no process has open, what an execution waits for comes first.
func TestJudgeWithoutProcesses(t *testing.T) {
	t.Parallel()
	w := diagnosis.NewWorld(store.View{Now: now, Owners: []store.ShardOwner{{}}})
	got := w.Judge(&diagnosis.Run{Address: at("order"), Waits: []model.Reason{{Code: model.WaitSignal, Name: "word"}}})
	if len(got) != 2 || got[0].Code != model.WaitSignal || got[1].String() != "waits for a node to own shard 0: no process is alive" || !model.Stranded(got) {
		t.Errorf("one that waits: %v", got)
	}
	if got = w.Judge(&diagnosis.Run{Address: at("order"), Waits: []model.Reason{{Code: model.WaitTurn}}}); len(got) != 1 || got[0].Code != model.WaitOwner {
		t.Errorf("one that is ready: %v", got)
	}
}

// If no live process serves a shard group, that is the reason why its shards have no owner, even if
// a process that is now gone owned them.
func TestWhyUnownedNamesTheGroup(t *testing.T) {
	t.Parallel()
	view := store.View{
		Now: now, Groups: []model.Group{{Name: "gpu", Shards: 1}, {Name: "video", Shards: 1}},
		Members: []store.Member{member(1, "a", 10), member(2, "b", -1)},
		Owners:  []store.ShardOwner{{Shard: 0}, {Shard: 1, Node: model.NodeID{15: 2}, Epoch: 2}, {Shard: 2}},
	}
	view.Members[0].Groups, view.Members[1].Groups = []string{model.DefaultGroup, "video"}, []string{"gpu"}
	w := diagnosis.NewWorld(view)
	for shard, want := range map[model.ShardID]string{
		0: "waits for a node to own shard 0", 1: "waits for a node to own shard 1: no live process serves the shard group gpu", 2: "waits for a node to own shard 2",
	} {
		if why, ok := w.WhyUnowned(shard); !ok || why.String() != want {
			t.Errorf("shard %d: %q, %t, want %q", shard, why, ok, want)
		}
	}
}

// noFlow is a store without rules.
type noFlow struct{ paused, refused bool }

func (f noFlow) PauseOf(queue string) (model.Reason, bool) {
	return model.Reason{Code: model.WaitPaused, Name: queue}, f.paused
}

func (f noFlow) RefusalOf(*core.Task) (model.Reason, bool, error) {
	return model.Reason{Code: model.WaitBreaker}, f.refused, nil
}

// If several things hold a task back, the diagnosis names one of them: first a paused queue, then a
// missing worker, then limits and breakers.
func TestTask(t *testing.T) {
	t.Parallel()
	mail, call := &model.TaskSpec{Queue: "mails", Kind: "mail"}, &model.TaskSpec{Queue: "calls", Kind: "call"}
	failed := []model.Event{{Failure: &model.Failure{Message: "no luck"}}}
	for name, c := range map[string]struct {
		task core.Task
		flow noFlow
		want model.Reason
	}{
		"claimed":  {core.Task{Spec: mail, Held: true}, noFlow{paused: true}, model.Reason{Code: model.WaitStep, Name: "mail"}},
		"retried":  {core.Task{Spec: mail, Visible: now + 1, Attempt: 1, Failures: failed}, noFlow{}, model.Reason{Code: model.WaitRetry, Name: "mail", Attempt: 2, Until: now + 1, Detail: "no luck"}},
		"delayed":  {core.Task{Spec: mail, Visible: now + 1}, noFlow{}, model.Reason{Code: model.WaitTimer, Until: now + 1}},
		"paused":   {core.Task{Spec: call}, noFlow{paused: true}, model.Reason{Code: model.WaitPaused, Name: "calls"}},
		"unserved": {core.Task{Spec: call}, noFlow{refused: true}, model.Reason{Code: model.WaitWorker, Name: "call", Detail: "queue calls, activity", Where: "no live process serves it"}},
		"refused":  {core.Task{Spec: mail}, noFlow{refused: true}, model.Reason{Code: model.WaitBreaker}},
	} {
		if got, err := town().Task("default", &c.task, c.flow); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

// The description lists the code of the live processes.
func TestAlive(t *testing.T) {
	t.Parallel()
	got := strings.Join(town().Alive("default"), "\n")
	for _, want := range []string{"a:1 (" + model.NodeID{15: 1}.String() + ") is alive and has workflows order, tax v1; entities box", "workflows refund, tax v2; activities mail on queue mails"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %q", got, want)
		}
	}

	if strings.Contains(got, "c:3") {
		t.Errorf("a dead process is alive: %s", got)
	}
	if _, missing := town().WhyNoProcess(at("old"), nil); !missing {
		t.Error("the code of the dead is there")
	}
	if _, missing := town().WhyNoProcess(at("refund"), nil); missing {
		t.Error("the code of b is missing")
	}
}
