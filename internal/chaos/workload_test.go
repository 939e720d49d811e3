package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// The workload: chains of steps with sleeps and failing attempts, executions that wait for a signal
// and a promise, and parents of two chains. The key alone determines the result of an execution.

const chainSteps = 7

type chainIn struct {
	Key   string
	Steps int
}

var (
	chain  = perdure.DeclareWorkflow[chainIn, int]("chain")
	gate   = perdure.DeclareWorkflow[string, string]("gate")
	family = perdure.DeclareWorkflow[string, int]("family")
	open   = perdure.NewSignal[int]("open")
	word   = perdure.NewPromise[string]("word")

	stages      = perdure.DeclareWorkflow[string, string]("stages")
	firstStage  = perdure.NewSignal[string]("first")
	secondStage = perdure.NewPromise[string]("second")
	whichStage  = perdure.NewQuery[perdure.Void, string]("stage")
)

// The workflow named stages has two stages. These are the texts with which an execution says what
// it waits for in the first stage and in the second stage.
const (
	stageOne = "waits for signal first"
	stageTwo = "waits for promise second"
)

// ledger records every run of a step body and every reply that a caller got. Its files survive the
// process.
type ledger struct{ path string }

// note records that a body runs.
func (l ledger) note(line string) error { return appendLine(l.path, line) }

// recordReply records a reply that a caller got.
func (l ledger) recordReply(what ...string) error {
	return appendLine(l.path+".heard", strings.Join(what, " "))
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// bodies reads which bodies ran, in the order of their starts.
func (l ledger) bodies(t *testing.T) []string {
	t.Helper()
	return readLines(t, l.path)
}

// answers reads the recorded replies.
func (l ledger) answers(t *testing.T) []string {
	t.Helper()
	return readLines(t, l.path+".heard")
}

// readLines reads a file. It returns nothing if the file does not exist yet.
func readLines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// counts returns how often each body ran.
func (l ledger) counts(t *testing.T) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, id := range l.bodies(t) {
		n[id]++
	}
	return n
}

// definitions returns the code of the workload.
func definitions(l ledger) perdure.Group {
	return perdure.Group{
		chain.Bind(func(ctx perdure.WorkflowCtx, in chainIn) (int, error) {
			sum := 0
			for i := range in.Steps {
				v, err := perdure.Do(ctx, "square", func(actx context.Context) (int, error) {
					if err := l.note(stepID(in.Key, i)); err != nil {
						return 0, err
					}
					if i%5 == 4 && perdure.Attempt(actx) == 1 {
						return 0, errors.New("the first attempt fails")
					}
					return i * i, nil
				}, perdure.StepKey(strconv.Itoa(i)), perdure.Constant(10, time.Millisecond))
				if err != nil {
					return 0, err
				}

				sum += v
				if i%3 == 2 {
					if err := ctx.Sleep(5 * time.Millisecond); err != nil {
						return 0, err
					}
				}
			}

			return sum, nil
		}),
		gate.Bind(func(ctx perdure.WorkflowCtx, key string) (string, error) {
			total := 0
			for range 3 {
				n, err := open.Receive(ctx)
				if err != nil {
					return "", err
				}
				total += n
			}
			w, err := word.Await(ctx)
			return fmt.Sprintf("%s %d", w, total), err
		}),
		stages.Bind(func(ctx perdure.WorkflowCtx, _ string) (string, error) {
			now := stageOne
			whichStage.Handle(ctx, func(perdure.Void) (string, error) { return now, nil })
			if _, err := firstStage.Receive(ctx); err != nil {
				return "", err
			}
			now = stageTwo
			return secondStage.Await(ctx)
		}),
		family.Bind(func(ctx perdure.WorkflowCtx, key string) (int, error) {
			a := perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) {
				return chain.Run(ctx, chainIn{key + "/a", 4}, perdure.RawKey(key+"/a"))
			})
			b, err := chain.Run(ctx, chainIn{key + "/b", 5}, perdure.RawKey(key+"/b"))
			if err != nil {
				return 0, err
			}
			v, err := a.Get(ctx)
			return v + b, err
		}),
	}
}

func squares(n int) (sum int) {
	for i := range n {
		sum += i * i
	}
	return sum
}

// drive starts n executions of each kind (or attaches to them) and waits for all of them. It can be
// called repeatedly, by one process after another or by several at the same time.
func drive(ctx context.Context, app *perdure.App, l ledger, n int) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = driveOne(app.With(ctx), l, "", i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// driveOne starts one execution of each kind (or attaches to it) and waits for them. It records the
// replies.
func driveOne(c perdure.Client, l ledger, prefix string, i int) error {
	var wg sync.WaitGroup
	var errs [3]error
	wg.Go(func() { errs[0] = driveChain(c, l, fmt.Sprintf("%sc%d", prefix, i)) })
	wg.Go(func() { errs[1] = driveGate(c, l, fmt.Sprintf("%sg%d", prefix, i)) })
	wg.Go(func() { errs[2] = driveFamily(c, l, fmt.Sprintf("%sf%d", prefix, i)) })
	wg.Wait()
	return errors.Join(errs[:]...)
}

func driveChain(c perdure.Client, l ledger, key string) error {
	return confirm(l, "chain/"+key, squares(chainSteps), func() (int, error) {
		return chain.Run(c, chainIn{key, chainSteps}, perdure.RawKey(key))
	})
}

func driveFamily(c perdure.Client, l ledger, key string) error {
	exec, err := family.Start(c, key, perdure.RawKey(key))
	if err == nil {
		err = l.recordReply("started", "family/"+key)
	}
	if err != nil {
		return fmt.Errorf("family/%s: %w", key, err)
	}
	return confirm(l, "family/"+key, squares(4)+squares(5), func() (int, error) { return exec.Result(c) })
}

func driveGate(c perdure.Client, l ledger, key string) error {
	exec, err := gate.Start(c, key, perdure.RawKey(key))
	if err == nil {
		err = l.recordReply("started", "gate/"+key)
	}

	// A conflict means that the execution has ended or that the promise is settled, because an
	// earlier drive has done the same.
	accepted := func(what, id string, err error) error {
		switch {
		case err == nil:
			return l.recordReply(what, "gate/"+key, id)
		case errors.Is(err, perdure.ErrConflict):
			return nil
		}
		return err
	}
	for s := 1; s <= 3 && err == nil; s++ {
		id := fmt.Sprintf("%s-%d", key, s)
		err = accepted("signal", id, open.Send(c, exec, s, perdure.RequestID(id)))
	}

	if err == nil {
		err = accepted("promise", "word", word.Resolve(c, exec, "open"))
	}
	if err != nil {
		return fmt.Errorf("gate/%s: %w", key, err)
	}

	return confirm(l, "gate/"+key, "open 6", func() (string, error) { return exec.Result(c) })
}

// confirm waits for the result of an execution, compares it, and records that the caller has it.
func confirm[T comparable](l ledger, what string, want T, result func() (T, error)) error {
	switch got, err := result(); {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case got != want:
		return fmt.Errorf("%s = %v, want %v", what, got, want)
	}
	return l.recordReply("ended", what)
}

// load is a number of callers. Each caller repeatedly drives one execution of each kind, until the
// load is stopped.
type load struct {
	begun, done atomic.Int64
	stopping    chan struct{}
	callers     sync.WaitGroup
	progress    chan struct{} // capacity 1; a value means that one more drive is done

	mu   sync.Mutex
	errs []error
}

// startLoad starts the callers. ctx ends the calls.
func startLoad(ctx context.Context, app *perdure.App, l ledger, prefix string, callers int) *load {
	w := &load{stopping: make(chan struct{}), progress: make(chan struct{}, 1)}
	for range callers {
		w.callers.Go(func() {
			for {
				select {
				case <-w.stopping:
					return
				default:
				}
				if err := driveOne(app.With(ctx), l, prefix, int(w.begun.Add(1)-1)); err != nil {
					w.mu.Lock()
					w.errs = append(w.errs, err)
					w.mu.Unlock()
				}
				w.done.Add(1)
				select {
				case w.progress <- struct{}{}:
				default:
				}
			}
		})
	}

	return w
}

// more waits until n further executions of each kind are done.
func (w *load) more(t *testing.T, n int64, within time.Duration) {
	t.Helper()
	limit := time.NewTimer(within)
	defer limit.Stop()
	for target := w.done.Load() + n; w.done.Load() < target; {
		select {
		case <-w.progress:
		case <-limit.C:
			t.Fatalf("%d of %d are not done within %s", target-w.done.Load(), n, within)
		}
	}
}

// stop lets the callers finish their executions, and returns how many there were of each kind.
func (w *load) stop() (int, error) {
	close(w.stopping)
	w.callers.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return int(w.begun.Load()), errors.Join(w.errs...)
}

// finish calls stop and fails the test if that takes too long.
func (w *load) finish(t *testing.T, url string, within time.Duration) int {
	t.Helper()
	type result struct {
		n   int
		err error
	}

	ended := make(chan result, 1)
	go func() {
		n, err := w.stop()
		ended <- result{n, err}
	}()

	select {
	case r := <-ended:
		if r.err != nil {
			t.Errorf("callers heard: %v", r.err)
		}
		return r.n
	case <-time.After(within):
		t.Fatalf("the workload did not end within %s:\n%s", within, openExecutions(t, url))
		return 0
	}
}

// verify checks the store once everything has ended: every execution is completed, its history has
// no gap and has every outcome once, and the body of every step has run. It returns how often each
// body ran.
func verify(t *testing.T, url string, n int, l ledger) map[string]int {
	t.Helper()
	ran := l.counts(t)
	nd, err := node.Open(t.Context(), node.Config{URL: url, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer nd.Close()
	b := nd.Backend()
	want := map[string]int{"chain": 3 * n, "gate": n, "family": n}
	req := api.ListRequest{Tenant: model.DefaultTenant, AllRuns: true, Limit: 1000}

	found := map[string]int{}
	for {
		page, err := b.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Executions {
			d := &page.Executions[i]
			found[d.Start.Address.Type]++
			if d.Outcome.Status != model.Completed {
				t.Errorf("%s is %s: %v %v", d.Start.Address, d.Outcome.Status, d.Reasons, d.Outcome.Failure)
			}
			verifyHistory(t, b, d, ran)
		}
		if req.Cursor = page.Cursor; req.Cursor == "" {
			break
		}
	}

	for kind, count := range want {
		if found[kind] != count {
			t.Errorf("%d runs of %s, want %d", found[kind], kind, count)
		}
	}

	return ran
}

// verifyOnce checks that the body of each step ran exactly once per attempt.
func verifyOnce(t *testing.T, ran map[string]int) {
	t.Helper()
	for id, n := range ran {
		_, step, _ := strings.Cut(id, "#")
		want := 1
		if i, _ := strconv.Atoi(step); i%5 == 4 {
			want = 2 // the first attempt fails
		}
		if n != want {
			t.Errorf("the body of step %s ran %d times, want %d", id, n, want)
		}
	}
}

func verifyHistory(t *testing.T, b api.Backend, d *api.Description, ran map[string]int) {
	t.Helper()
	page, err := b.History(t.Context(), api.HistoryRequest{Target: api.Target{Address: d.Start.Address, Run: d.Start.Run}, After: -1})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]int{}

	last := model.Time(0)
	for i, e := range page.Events {
		if e.Seq != int64(i) {
			t.Errorf("%s: event %d stands at position %d", d.Start.Address, i, e.Seq)
		}
		if e.At < last {
			t.Errorf("%s: event %d is older than the one before", d.Start.Address, i)
		}
		last = e.At

		switch e.Kind {
		case model.EventStepCompleted, model.EventStepFailed, model.EventTimerFired, model.EventChildStarted:
			outcomes[e.Kind.String()+e.ID]++
		case model.EventChildClosed:
			outcomes["closed"+e.ID]++
		case model.EventSignalReceived:
			outcomes["signal"+e.RequestID]++
		case model.EventSignalTaken:
			outcomes["taken"+strconv.FormatInt(e.Ref, 10)]++
		case model.EventPromiseSettled:
			outcomes["promise"+e.Name]++
		default:
		}
	}

	if d.Start.Address.Type == "chain" {
		for i := range countKind(page.Events, model.EventStepCompleted) {
			if id := stepID(d.Start.Address.Key, i); ran[id] == 0 {
				t.Errorf("step %s is recorded, but its body never ran", id)
			}
		}
	}

	for what, n := range outcomes {
		if n != 1 {
			t.Errorf("%s: %s is recorded %d times", d.Start.Address, what, n)
		}
	}
}

func countKind(events []model.Event, kind model.EventKind) (n int) {
	for i := range events {
		if events[i].Kind == kind {
			n++
		}
	}
	return n
}

// stepID is the name of a step of a chain in the ledger.
func stepID(key string, i int) string { return fmt.Sprintf("%s#%d", key, i) }

// openExecutions lists the open executions with their histories.
func openExecutions(t *testing.T, url string) string {
	nd, err := node.Open(t.Context(), node.Config{URL: url, ReadOnly: true})
	if err != nil {
		return err.Error()
	}
	defer nd.Close()
	var text strings.Builder
	page, err := nd.Backend().List(t.Context(), api.ListRequest{Tenant: model.DefaultTenant, Statuses: []model.Status{model.Running}, Limit: 5})
	if err != nil {
		return err.Error()
	}

	for _, d := range page.Executions {
		full, err := nd.Backend().Describe(t.Context(), api.Target{Address: d.Start.Address})
		fmt.Fprintf(&text, "%s %v timers %v %v\n", d.Start.Address, d.Reasons, full.Timers, err)
		h, _ := nd.Backend().History(t.Context(), api.HistoryRequest{Target: api.Target{Address: d.Start.Address}, After: -1})
		for _, e := range h.Events {
			fmt.Fprintf(&text, "  %d %s %s %s %v\n", e.Seq, e.Kind, e.Name, e.ID, e.Due)
			if e.Kind == model.EventChildStarted {
				child, err := nd.Backend().Describe(t.Context(), api.Target{Address: e.Target})
				fmt.Fprintf(&text, "    %s is %s on shard %d, its parent on %d: %v %v\n", e.Target, child.Outcome.Status, child.Shard, d.Shard, child.Reasons, err)
			}
		}
	}

	text.WriteString(rawTables(t, url))
	return text.String()
}

// rawTables lists rows of the store in which lost work could still be.
func rawTables(t *testing.T, url string) string {
	if !strings.HasPrefix(url, "postgres") {
		return ""
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		return err.Error()
	}

	defer conn.Close(t.Context())
	var text strings.Builder
	for _, sql := range []string{
		`select 'message', m.to_shard, m.from_shard, m.seq, coalesce(c.position, 0) from perdure.messages m
left join perdure.cursors c using (to_shard, from_shard) where m.seq > coalesce(c.position, 0) order by 2, 3, 4`,
		`select 'inbox', shard, workflow, key, request, not_before from perdure.inbox order by id`,
		`select 'node', node, epoch, expires, draining, pid from perdure.nodes`,
		`select 'fence', node, epoch, batch, lane from perdure.fences`,
		`select 'shards', node, epoch, count(*) from perdure.shards group by 2, 3`,
		`select 'runnable', r.shard, e.workflow, e.key from perdure.runnable r join perdure.executions e using (shard, run)`,
	} {
		rows, err := conn.Query(t.Context(), sql)
		if err != nil {
			return text.String() + err.Error()
		}
		for rows.Next() {
			v, _ := rows.Values()
			fmt.Fprintln(&text, v...)
		}
		if rows.Err() != nil {
			fmt.Fprintln(&text, rows.Err())
		}
	}

	return text.String()
}
