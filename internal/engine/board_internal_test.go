package engine

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store/memory"
)

// keeping is a board with its gate, and a model of what the board should do.
type keeping struct {
	b       *board
	now     model.Time
	made    int
	waiting []queue.Item
	held    map[model.TaskRef]queue.Item
	limits  map[string]int
	perKey  int // how many tasks of a key may run; 0 for any number
	set     *rule.Set
	paused  map[flow.Queue]string
	slots   map[string]int
}

var limitNames, queueNames = []string{"a", "b", "c"}, []string{"p", "q", "r"}

// needs returns the limits that a task needs, with their sizes.
func (k *keeping) needs(it *queue.Item) map[string]int {
	n := map[string]int{}
	for _, name := range it.Spec.Limits {
		n[name] = k.limits[name]
	}
	if k.perKey > 0 {
		n["key "+string(it.Input.Data)] = k.perKey
	}
	return n
}

func (k *keeping) uses(of string) (n int) {
	for _, it := range k.held {
		if _, ok := k.needs(&it)[of]; ok {
			n++
		}
	}
	return n
}

func (k *keeping) busy(queue string) (n int) {
	for _, it := range k.held {
		if it.Spec.Queue == queue {
			n++
		}
	}
	return n
}

func (k *keeping) rules(t *rapid.T) {
	var list []rule.Limit
	for _, name := range limitNames {
		k.limits[name] = rapid.IntRange(1, 3).Draw(t, name)
		list = append(list, rule.Limit{Name: name, Per: rule.PerName, Numbers: limit.Numbers{Concurrency: k.limits[name]}})
	}
	if k.perKey = rapid.IntRange(0, 2).Draw(t, "per key"); k.perKey > 0 {
		list = append(list, rule.Limit{Name: "keyed", Queue: "*", Per: rule.PerKey, Key: "input", Numbers: limit.Numbers{Concurrency: k.perKey}})
	}
	set, err := rule.NewSet(list, nil)
	if err != nil {
		t.Fatal(err)
	}
	k.set = set
	k.b.reconfigure(k.now, flow.Settings{Rules: set, Paused: k.paused})
}

func (k *keeping) item(t *rapid.T) queue.Item {
	k.made++
	spec := &model.TaskSpec{Kind: "work", Queue: rapid.SampledFrom(queueNames).Draw(t, "queue"), Priority: rapid.IntRange(0, 1).Draw(t, "priority")}
	for _, name := range limitNames {
		if rapid.IntRange(0, 2).Draw(t, name) == 0 {
			spec.Limits = append(spec.Limits, name)
		}
	}
	ref := model.TaskRef{Address: model.Address{Tenant: model.DefaultTenant, Type: "task:work", Key: fmt.Sprint(k.made)}, ID: model.TaskStep}
	ref.Run[0], ref.Run[1] = byte(k.made>>8), byte(k.made)
	in := &model.Payload{Data: []byte(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "key"))}
	return queue.Item{Ref: ref, Spec: spec, Input: in, Scheduled: k.now, Visible: k.now}
}

// begin commits a proposal, and checks that the proposal exceeds no limit.
func (k *keeping) begin(t *rapid.T, it queue.Item, id queue.WorkerID) {
	for name, most := range k.needs(&it) {
		if n := k.uses(name); n >= most {
			t.Fatalf("%s begins, and %d of %d have %s already", it.Ref, n, most, name)
		}
	}
	k.held[it.Ref] = it
	k.b.Hold(k.now, it, 1, id, "")
}

// dispatch starts the tasks that may start. It fails if a task could start and does not.
func (k *keeping) dispatch(t *rapid.T) {
	for _, m := range k.b.match(k.now) {
		i := slices.IndexFunc(k.waiting, func(it queue.Item) bool { return it.Ref == m.Ref })
		it := k.waiting[i]
		k.waiting = slices.Delete(k.waiting, i, i+1)
		k.begin(t, it, m.Worker)
	}

	for i := range k.waiting {
		it := &k.waiting[i]
		_, paused := k.paused[flow.Queue{Tenant: model.DefaultTenant, Name: it.Spec.Queue}]
		could := !paused && k.busy(it.Spec.Queue) < k.slots[it.Spec.Queue]
		for name, most := range k.needs(it) {
			could = could && k.uses(name) < most
		}
		if could {
			why, _ := k.b.Explain(it.Ref)
			t.Fatalf("%s of queue %s could begin with %v and %s; limits %+v", it.Ref, it.Spec.Queue, k.needs(it), why, k.b.gate.Limits())
		}
	}
}

// Workers and tasks come and go, and rules and pauses change. No limit is exceeded, and every task
// that could start does start.
func TestBoardWithGate(t *testing.T) {
	t.Parallel()
	eng := New(Config{Store: memory.New(memory.Options{})})
	rapid.Check(t, func(t *rapid.T) {
		k := &keeping{
			b: newBoard(&incarnation{eng: eng}), now: 100, held: map[model.TaskRef]queue.Item{}, limits: map[string]int{},
			paused: map[flow.Queue]string{}, slots: map[string]int{},
		}
		for i, q := range queueNames {
			k.slots[q] = rapid.IntRange(0, 3).Draw(t, "slots")
			k.b.b.Join(k.now, queue.WorkerID(i+1), model.TaskOffer{Tenants: []string{model.DefaultTenant}, Queues: []string{q}, Kinds: []string{"work"}, Slots: k.slots[q]})
		}

		k.rules(t)
		t.Repeat(map[string]func(*rapid.T){
			"": k.dispatch,
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(t, "how many") {
					it := k.item(t)
					k.b.Add(k.now, it)
					k.waiting = append(k.waiting, it)
				}
			},
			"reserve": func(t *rapid.T) {
				it := k.item(t)
				if id, _, ok := k.b.Reserve(k.now, &it); ok {
					k.begin(t, it, id)
				} else {
					k.b.Add(k.now, it)
					k.waiting = append(k.waiting, it)
				}
			},
			"reserve without a commit": func(t *rapid.T) { // its commit fails
				it := k.item(t)
				if id, _, ok := k.b.Reserve(k.now, &it); ok {
					k.begin(t, it, id)
					delete(k.held, it.Ref)
					k.b.Remove(k.now, it.Ref, queue.Neither)
				}
			},
			"end": func(t *rapid.T) {
				refs := make([]model.TaskRef, 0, len(k.held))
				for ref := range k.held {
					refs = append(refs, ref)
				}
				if len(refs) == 0 {
					t.Skip()
				}
				slices.SortFunc(refs, func(a, b model.TaskRef) int { return a.Run.Compare(b.Run) })
				ref := rapid.SampledFrom(refs).Draw(t, "holder")
				delete(k.held, ref)
				k.b.Remove(k.now, ref, queue.Outcome(rapid.IntRange(0, 2).Draw(t, "how")))
			},
			"cancel": func(t *rapid.T) {
				if len(k.waiting) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(k.waiting)-1).Draw(t, "waiter")
				k.b.Remove(k.now, k.waiting[i].Ref, queue.Neither)
				k.waiting = slices.Delete(k.waiting, i, i+1)
			},
			"slots": func(t *rapid.T) {
				i := rapid.IntRange(0, len(queueNames)-1).Draw(t, "worker")
				k.slots[queueNames[i]] = rapid.IntRange(0, 3).Draw(t, "slots")
				k.b.b.Slots(k.now, queue.WorkerID(i+1), k.slots[queueNames[i]])
			},
			"pause": func(t *rapid.T) {
				next := map[flow.Queue]string{}
				for _, q := range queueNames {
					if rapid.IntRange(0, 2).Draw(t, q) == 0 {
						next[flow.Queue{Tenant: model.DefaultTenant, Name: q}] = "because"
					}
				}
				k.paused = next
				k.b.reconfigure(k.now, flow.Settings{Rules: k.set, Paused: next})
			},
			"rules": k.rules,
			"time":  func(t *rapid.T) { k.now += model.Time(rapid.IntRange(1, 5).Draw(t, "by")) },
		})
	})
}

// A task that can start does start, in the next round if necessary, even if it is behind a long
// line of tasks that no worker can execute.
func TestLongLineThatIsPassedOver(t *testing.T) {
	t.Parallel()
	b := newBoard(&incarnation{eng: New(Config{Store: memory.New(memory.Options{})})})
	set, err := rule.NewSet([]rule.Limit{
		{Name: "all", Queue: "*", Numbers: limit.Numbers{Concurrency: 1}},
		{Name: "keyed", Queue: "*", Per: rule.PerKey, Key: "input", Numbers: limit.Numbers{Concurrency: 1}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}

	b.reconfigure(1, flow.Settings{Rules: set})
	const many = maxRounds + 100
	for i, q := range []string{"p", "q"} {
		b.b.Join(1, queue.WorkerID(i+1), model.TaskOffer{Tenants: []string{model.DefaultTenant}, Queues: []string{q}, Kinds: []string{"work"}, Slots: 2})
	}

	add := func(n int, q string) queue.Item {
		it := queue.Item{Spec: &model.TaskSpec{Kind: "work", Queue: q}, Input: &model.Payload{Data: fmt.Append(nil, n)}, Scheduled: 1, Visible: 1}
		it.Ref = model.TaskRef{Address: model.Address{Tenant: model.DefaultTenant, Type: "task:work", Key: fmt.Sprint(n)}, ID: model.TaskStep}
		it.Ref.Run[0], it.Ref.Run[1] = byte(n>>8), byte(n)
		b.Add(many, it)
		return it
	}

	first := add(0, "p")
	if ms := b.match(many); len(ms) != 1 {
		t.Fatalf("%d matches", len(ms))
	}
	b.Hold(many, first, 1, 1, "")
	for n := range many {
		add(n+1, "p")
	}
	b.match(many) // the tasks wait in the line
	last := add(many+1, "q")
	b.match(many)
	b.b.Slots(many, 1, 0)
	b.Remove(many, first.Ref, queue.Succeeded)

	for tries := 0; b.moved; tries++ { // as propose does
		ms := b.match(many)
		if len(ms) == 1 && ms[0].Ref == last.Ref {
			return
		}
		b.moved = len(b.woken) > 0
	}

	t.Error("the only one that could begin is forgotten")
}

// BenchmarkBoard measures the cost of a task for the board if an idle worker takes the task
// immediately.
func BenchmarkBoard(b *testing.B) {
	board := newBoard(&incarnation{eng: New(Config{Store: memory.New(memory.Options{})})})
	board.b.Join(1, 1, model.TaskOffer{Tenants: []string{model.DefaultTenant}, Queues: []string{"default"}, Kinds: []string{"work"}, Slots: 10})
	b.ReportAllocs()
	for b.Loop() {
		it := workItem(1)
		id, name, ok := board.Reserve(1, &it)
		if !ok {
			b.Fatal("no worker takes it")
		}
		board.Hold(1, it, 1, id, name)
		board.Remove(1, it.Ref, queue.Succeeded)
	}
}

// stopLog is a worker that records which claims it must stop.
type stopLog struct {
	noWorker
	stopped []model.ClaimRef
}

func (l *stopLog) Stop(ref model.ClaimRef, _ model.StopReason) { l.stopped = append(l.stopped, ref) }

// A run moves to another node, which ends the claim of a worker of this node. When the run has come
// back, that worker stops before a worker gets the next claim.
func TestEarlierClaimStopsFirst(t *testing.T) {
	t.Parallel()
	eng := New(Config{Store: sharedStore{memory.New(memory.Options{})}})
	b := newBoard(&incarnation{eng: eng, epoch: 1})
	set, err := rule.NewSet([]rule.Limit{{Name: "all", Queue: "*", Numbers: limit.Numbers{Concurrency: 1}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.reconfigure(1, flow.Settings{Rules: set})
	w := &stopLog{}
	s := eng.taskSession(w, model.TaskOffer{Tenants: []string{model.DefaultTenant}, Name: "w"}, model.NodeID{})

	it := queue.Item{Spec: &model.TaskSpec{Kind: "work", Queue: "q"}, Input: &model.Payload{}, Scheduled: 1, Visible: 1}
	it.Ref = model.TaskRef{Address: model.Address{Tenant: model.DefaultTenant, Type: "task:work", Key: "k"}, Run: model.RunID{1}, ID: model.TaskStep}
	first, next := model.ClaimRef{TaskRef: it.Ref, Claim: 1}, model.ClaimRef{TaskRef: it.Ref, Claim: 3}
	s.execute([]model.Claim{{Ref: first}})
	b.Hold(1, it, first.Claim, s.id, "")
	b.Forget(1, it.Ref) // the run moves away
	if ok, why, _ := b.gate.Take(1, &it); !ok {
		t.Fatalf("the next attempt may not start: %s", why)
	}

	for _, ref := range []model.ClaimRef{first, next, next} {
		b.stopEarlier([]lane.TaskCall{{Kind: lane.TaskExecute, Ref: ref}})
		if ref == first && len(w.stopped) > 0 {
			t.Error("the claim that a lane hands over again stops itself")
		}
	}
	if len(w.stopped) != 1 || w.stopped[0] != first || s.hasClaim(first) {
		t.Errorf("the worker had to stop %v", w.stopped)
	}
}
