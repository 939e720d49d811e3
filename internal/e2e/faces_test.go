package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/cli"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// place is where an operator looks at the executions: a process with an app, or the command line.
type place struct {
	name    string
	app     *perdure.App // nil for the command line
	metrics *prometheus.Registry

	said map[string]string // the last answers of this place, by the names of the stalls
}

// blind reports whether a place cannot know the reason of a stall. The command line can only read
// the file of an SQLite store. Some reasons are only in the memory of the process that has the file
// open.
func (w *stalls) blind(p *place, x *stall) bool {
	return x.memory && p.app == nil && w.s.kind == "sqlite"
}

// perdureCLI runs a command and returns its output and exit code.
func (w *stalls) perdureCLI(args ...string) (string, int) {
	w.t.Helper()
	var out, bad bytes.Buffer
	code := cli.Main(w.t.Context(), append(args, "--store", w.s.url), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &bad})
	return out.String() + bad.String(), code
}

// fromCLI decodes the JSON output of a command.
func fromCLI[T any](w *stalls, args ...string) (v T) {
	w.t.Helper()
	text, code := w.perdureCLI(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(text), &v); err != nil && code == 0 {
		w.t.Fatalf("perdure %s: %v in %s", strings.Join(args, " "), err, text)
	}
	return v
}

type listedLine struct {
	Workflow, Key, Reason string
	Waits                 []string
}

func (l listedLine) ref() string { return l.Workflow + "/" + l.Key }

// describeAll returns how a place describes each stall. The main reason has the name of the stall
// as its key. The causes of that reason have the key "<name> because".
func (w *stalls) describeAll(p *place) map[string]string {
	w.t.Helper()
	found := map[string]string{}
	for _, x := range w.all {
		if p.app == nil {
			text, _ := w.perdureCLI("workflow", "explain", x.ref.Workflow+"/"+x.ref.Key)
			reason, rest, _ := strings.Cut(text, ".\n") // a reason with a stack has several lines
			found[x.name] = flat(strings.TrimPrefix(reason, "It "))
			found[x.name+" because"] = rest
			// Summaries add the updates that the code does not handle yet.
			for strings.HasPrefix(rest, "It ") {
				reason, rest, _ = strings.Cut(rest, ".\n")
				if strings.Contains(reason, "which its code does not handle yet") {
					found[x.name] += "; " + flat(strings.TrimPrefix(reason, "It "))
				}
			}
			continue
		}
		info, err := p.app.Executions().Describe(w.t.Context(), x.ref)
		if err != nil {
			found[x.name] = err.Error()
			continue
		}
		found[x.name], found[x.name+" because"] = flat(info.Reason), strings.Join(info.Because, "\n")
	}

	return found
}

// flat puts a text into one line, with single spaces. So texts of the command line, which prints
// spaces for tabs, can be compared with texts of an app.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// listReasons returns the reasons that the list of executions shows at a place.
func (w *stalls) listReasons(p *place) map[string]string {
	w.t.Helper()
	if p.app == nil {
		return reasonsOf(fromCLI[[]listedLine](w, "workflow", "list", "--status", "open", "--limit", "0"))
	}
	return w.collect(p.app.Executions().List(w.t.Context(), `status = "open"`))
}

// strandedReasons returns the reasons that the list of stranded executions shows at a place.
func (w *stalls) strandedReasons(p *place) map[string]string {
	w.t.Helper()
	if p.app == nil {
		return reasonsOf(fromCLI[[]listedLine](w, "workflow", "stranded"))
	}
	return w.collect(p.app.Executions().Stranded(w.t.Context()))
}

func reasonsOf(lines []listedLine) map[string]string {
	found := map[string]string{}
	for _, l := range lines {
		found[l.ref()] = flat(l.Reason)
	}
	return found
}

func (w *stalls) collect(all func(func(perdure.Info, error) bool)) map[string]string {
	w.t.Helper()
	found := map[string]string{}
	for info, err := range all {
		if err != nil {
			w.t.Fatal(err)
		}
		found[info.Ref.Workflow+"/"+info.Ref.Key] = flat(info.Reason)
	}
	return found
}

// problems returns a message for each answer of a place that is not as expected.
func (w *stalls) problems(p *place) (wrong []string) {
	w.t.Helper()
	described, listed, stranded := w.describeAll(p), w.listReasons(p), w.strandedReasons(p)
	p.said = described

	for i := range w.all {
		x := &w.all[i]
		if w.blind(p, x) {
			continue
		}
		ref := x.ref.Workflow + "/" + x.ref.Key

		got := described[x.name]
		for _, part := range x.want {
			if !strings.Contains(got, part) {
				wrong = append(wrong, fmt.Sprintf("%s: %s is explained as %q, want %q", p.name, x.name, got, part))
			}
		}

		for _, part := range x.because {
			if because := described[x.name+" because"]; !strings.Contains(because, part) {
				wrong = append(wrong, fmt.Sprintf("%s: %s is explained by %q, want %q", p.name, x.name, because, part))
			}
		}

		if listed[ref] != got {
			wrong = append(wrong, fmt.Sprintf("%s: %s is listed with %q and explained as %q", p.name, x.name, listed[ref], got))
		}
		if why, found := stranded[ref]; found != x.code.Strands() || found && why != got {
			wrong = append(wrong, fmt.Sprintf("%s: %s is stranded: %v (%q), explained as %q", p.name, x.name, found, why, got))
		}
	}

	return wrong
}

// strandedByCode computes how many executions a place must report as stranded, by reason code. A
// stranded execution continues only after an operator has acted.
func (w *stalls) strandedByCode(p *place) map[string]int {
	found := map[string]int{}
	for i := range w.all {
		if x := &w.all[i]; x.code.Strands() && !w.blind(p, x) {
			found[string(x.code)]++
		}
	}
	return found
}

// countMetric returns how many executions the metric of all processes together reports as stranded,
// by reason code.
func (w *stalls) countMetric(places []*place) map[string]int {
	w.t.Helper()
	found := map[string]int{}
	for _, p := range places {
		if p.metrics == nil {
			continue
		}
		families, err := p.metrics.Gather()
		if err != nil {
			w.t.Fatal(err)
		}

		for _, f := range families {
			if f.GetName() != "perdure_workflow_runs_stranded" {
				continue
			}
			for _, m := range f.GetMetric() {
				if n := int(m.GetGauge().GetValue()); n > 0 {
					found[m.GetLabel()[0].GetValue()] += n
				}
			}
		}
	}

	return found
}

// doctor returns the line of the doctor command that is about executions. If there is no such line,
// doctor returns the whole output.
func (w *stalls) doctor() string {
	w.t.Helper()
	text, _ := w.perdureCLI("doctor")
	for line := range strings.Lines(text) {
		if strings.Contains(line, " executions ") {
			return line
		}
	}
	return text
}

// awaitAgreement waits until every place gives the expected reasons. Within a place, explain, list
// and stranded must give the same reason.
func (w *stalls) awaitAgreement(places []*place) {
	w.t.Helper()
	for began, next := time.Now(), backoff(); ; next() {
		var wrong []string
		for _, p := range places {
			if wrong = w.problems(p); len(wrong) > 0 {
				break
			}
		}
		if len(wrong) == 0 {
			return
		}
		if time.Since(began) > patience {
			w.t.Fatalf("%d answers are wrong:\n%s", len(wrong), strings.Join(wrong, "\n"))
		}
	}
}

// compare checks that all places have given the same main reasons, word for word.
func (w *stalls) compare(places []*place) {
	w.t.Helper()
	first := places[0]
	for _, p := range places[1:] {
		for i := range w.all {
			if x := &w.all[i]; !w.blind(p, x) && p.said[x.name] != first.said[x.name] {
				w.t.Errorf("%s says of %s that it %s; %s says that it %s", first.name, x.name, first.said[x.name], p.name, p.said[x.name])
			}
		}
	}
}

// The test makes executions stall in all ways that we know. Every interface says why: explain,
// list, stranded, doctor, queue list, schedule list and the metric of stranded executions. The
// interfaces agree with each other, in all processes and on the command line.
func TestEveryFaceSaysWhyNothingGoesOn(t *testing.T) {
	t.Parallel()
	kinds := durable
	if testing.Short() {
		kinds = durable[:1] // two processes on PostgreSQL take a minute
	}
	onStores(t, kinds, func(t *testing.T, s *site) {
		w := &stalls{t: t, s: s, free: make(chan struct{})}
		s.cfg.MaxHistory, s.cfg.IdleAfter, s.cfg.DrainTimeout = 1<<20, 50*time.Millisecond, time.Second
		s.cfg.Tasks.Slots = stallSlots
		w.past()
		w.damage()

		held := w.heldActivity()
		flow := w.flow(held)
		defs := []perdure.Definition{
			flow, held, stallBox, stallPaused, stallBroken, stallFails, stallInline, large, old("b"), damaged,
			perdure.NewWorkflow("newer", waitsForWordAfterStep), perdure.NewWorkflow("pinned", waitsForWord, perdure.Pinned()),
		}
		schedules := stallSchedules(flow)
		defs = append(append(defs, schedules...), w.definitions()...)
		s.cfg.Version = "v2"
		places := []*place{w.place("the first process", append(defs, onlyA)...)}
		if s.kind == "postgres" {
			places = append(places, w.place("the second process", append(defs, onlyB, vault)...))
		}
		t.Cleanup(func() { close(w.free) }) // before the apps are closed
		w.awaitOwners(len(places))
		w.present(places[0].app, held, flow)
		w.startRefused(places[0].app, flow)
		w.busy(places[0].app, flow, stallSlots*len(places)-1)
		for range 2 { // the second job waits for the end of the first
			if err := schedules[2].(*perdure.Schedule).Trigger(caller(t, places[0].app)); err != nil {
				t.Fatal(err)
			}
		}
		if s.kind == "postgres" {
			w.startApart(places)
			w.astray(places[0].app, flow)
		}
		places = append(places, &place{name: "the command line"})

		w.awaitAgreement(places)
		w.compare(places)
		want := w.strandedByCode(places[0])
		eventually(t, fmt.Sprintf("the metric counts %v", want), func() bool { return maps.Equal(w.countMetric(places), want) })
		found := w.strandedByCode(places[len(places)-1])
		eventually(t, fmt.Sprintf("doctor counts %v", found), func() bool {
			line := w.doctor()
			for code, n := range found {
				if !strings.Contains(line, fmt.Sprintf("%d %s", n, code)) {
					return false
				}
			}
			return true
		})
		w.queues()
		w.schedules(places)
		w.late(places)
		t.Logf("%d stalls", len(w.all))
	})
}

// damage changes rows directly in the store, so that processes cannot read them.
func (w *stalls) damage() {
	w.s.damage("history", "body", "seq = 2")
	w.s.change("entities", "body", "key = 'damaged'")
	if w.s.kind == "postgres" {
		w.s.sql(`update perdure.history h set kind = 200 from perdure.executions e where e.run = h.run and e.workflow = 'newer' and h.seq = 1`)
	}
}

// place opens an app with metrics of its own, and returns it as a place.
func (w *stalls) place(name string, defs ...perdure.Definition) *place {
	reg := prometheus.NewRegistry()
	w.s.cfg.Metrics = reg
	return &place{name: name, app: w.s.open(defs...), metrics: reg}
}

// awaitOwners waits until every shard has a live owner, and n processes own shards.
func (w *stalls) awaitOwners(n int) {
	w.t.Helper()
	eventually(w.t, "all processes own shards", func() bool {
		owners, all := w.owners()
		return all && len(slices.Compact(slices.Sorted(maps.Values(owners)))) == n
	})
}

// owners returns the process that owns each shard, and whether all these processes are alive.
func (w *stalls) owners() (owners map[model.ShardID]string, all bool) {
	w.t.Helper()
	n, err := node.Open(w.t.Context(), node.Config{URL: w.s.url, ReadOnly: true})
	if err != nil {
		w.t.Fatal(err)
	}
	defer n.Close()
	v, err := n.Store().Members(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}

	owners, all = map[model.ShardID]string{}, true
	for _, o := range v.Owners {
		alive := false
		for _, m := range v.Members {
			alive = alive || m.ID == o.Node && m.Epoch == o.Epoch && m.Expires >= v.Now
		}
		all = all && alive
		owners[o.Shard] = o.Node.String()
	}

	return owners, all
}

var (
	onlyA = perdure.NewWorkflow("only-a", waitsForWord)
	onlyB = perdure.NewWorkflow("only-b", waitsForWord)
	vault = perdure.NewEntity[int]("vault")
	stow  = perdure.NewOperation(vault, "stow", func(_ perdure.EntityCtx, n *int, by int) (int, error) { *n += by; return *n, nil })
)

// startApart starts executions of two workflows. Each process has the code of only one of the
// workflows. The executions are in shards of both processes.
func (w *stalls) startApart(places []*place) {
	w.t.Helper()
	c := caller(w.t, places[0].app)
	for _, d := range []*perdure.Workflow[string, string]{onlyA, onlyB} {
		for i := range 6 {
			ref := mustStart(w.t, c, d, "x", perdure.RawKey(fmt.Sprint("k", i))).Ref
			// The process that has the code runs the execution, even if the other process owns the
			// shard of the execution.
			x := stall{name: ref.Workflow + " " + ref.Key, ref: ref, code: model.WaitSignal, want: []string{"waits for signal word"}}
			w.add(x)
		}
	}
}

// astray lets a workflow call an entity in a shard of the first process. Only the second process
// has the code of that entity.
func (w *stalls) astray(app *perdure.App, flow *perdure.Workflow[string, string]) {
	w.t.Helper()
	owners, _ := w.owners()
	first, key := w.codeAt("only-a"), ""
	for i := 0; key == ""; i++ {
		a := model.Address{Tenant: model.DefaultTenant, Type: "entity:vault", Key: fmt.Sprint("v", i)}
		if owners[a.Shard(len(owners))] == first {
			key = a.Key
		}
	}
	if _, err := mustStart(w.t, caller(w.t, app), flow, "stow "+key, perdure.RawKey("stow")).Result(caller(w.t, app)); err != nil {
		w.t.Errorf("a call of an entity of another process: %v", err)
	}
}

// stallSchedules returns schedules that cannot start their jobs, each for a different reason: a
// paused schedule, a schedule whose job has no code, and a schedule that waits for the end of its
// last job.
func stallSchedules(flow *perdure.Workflow[string, string]) []perdure.Definition {
	return []perdure.Definition{
		perdure.NewSchedule("asleep", perdure.Every(24*time.Hour), flow.Job("signal"), perdure.PausedAtFirst("holiday")),
		perdure.NewSchedule("orphan", perdure.Every(24*time.Hour), perdure.DeclareWorkflow[string, string]("gone").Job("x")),
		perdure.NewSchedule("busy", perdure.Every(24*time.Hour), flow.Job("signal"), perdure.OverlapQueue),
	}
}

// schedules checks what each place reports about the schedules.
func (w *stalls) schedules(places []*place) {
	w.t.Helper()
	type line struct {
		Name, Trouble string
		Status        struct {
			Paused  bool
			Why     string
			Waiting *struct{}
		}
	}

	for _, p := range places {
		found := map[string]line{}
		if p.app == nil {
			for _, l := range fromCLI[[]line](w, "schedule", "list") {
				found[l.Name] = l
			}
		} else {
			for s, err := range p.app.Schedules().List(w.t.Context()) {
				if err != nil {
					w.t.Fatal(err)
				}
				l := line{Name: s.Name, Trouble: s.Trouble}
				if l.Status.Paused, l.Status.Why = s.Paused, s.Why; !s.Waiting.IsZero() {
					l.Status.Waiting = &struct{}{}
				}
				found[s.Name] = l
			}
		}

		if s := found["asleep"]; !s.Status.Paused || s.Status.Why != "holiday" || s.Trouble != "" {
			w.t.Errorf("%s: the paused schedule: %+v", p.name, s)
		}
		if s := found["orphan"]; s.Trouble != "its job waits for a worker that offers workflow gone: no live process has its code" {
			w.t.Errorf("%s: the schedule of a workflow without code: %+v", p.name, s)
		}
		if s := found["busy"]; s.Status.Waiting == nil || s.Trouble != "" {
			w.t.Errorf("%s: the schedule whose last job is open: %+v", p.name, s)
		}
	}

	for name, want := range map[string]string{
		"asleep": "the schedule is paused: holiday", "orphan": "no live process has its code",
		"busy": "is open (overlap queue)",
	} {
		if text, _ := w.perdureCLI("workflow", "explain", "perdure.schedule/"+name); !strings.Contains(text, want) {
			w.t.Errorf("schedule %s is explained as %s, want %q", name, text, want)
		}
	}
}

// codeAt returns the process that has the code of a workflow.
func (w *stalls) codeAt(workflow string) string {
	w.t.Helper()
	type worker struct {
		Node      string
		Workflows []string
	}
	for _, x := range fromCLI[[]worker](w, "worker", "list") {
		if slices.Contains(x.Workflows, workflow) {
			return x.Node
		}
	}
	w.t.Fatalf("no process has the code of %s", workflow)
	return ""
}

// queues checks the output of the command queue list.
func (w *stalls) queues() {
	w.t.Helper()
	type line struct {
		Queue, Reason string
		Open, Waiting int
		Paused        bool
		Unserved      []string
	}

	found := map[string]line{}
	for _, l := range fromCLI[[]line](w, "queue", "list") {
		found[l.Queue] = l
	}
	if q := found["nobody"]; q.Open != 2 || q.Waiting != 2 || !slices.Equal(q.Unserved, []string{"unserved"}) {
		w.t.Errorf("the queue without workers: %+v", q)
	}
	if q := found["closed"]; q.Open != 3 || !q.Paused || q.Reason != "inventory" || len(q.Unserved) > 0 {
		w.t.Errorf("the paused queue: %+v", q)
	}
	if q := found["open"]; q.Open != 6+w.fills || len(q.Unserved) > 0 {
		w.t.Errorf("the queue that is served: %+v", q)
	}
}

// late makes calls that end at their deadlines. The error of each call says what the call waited
// for.
func (w *stalls) late(places []*place) {
	w.t.Helper()
	for _, p := range places {
		if p.app == nil {
			continue
		}

		for what, try := range map[string]struct {
			do   func(c perdure.Client) error
			want string
		}{
			"a result": {func(c perdure.Client) error {
				_, err := perdure.DeclareWorkflow[string, string]("gone").Execution(perdure.RawKey("k")).Result(c)
				return err
			}, "gone/k waits for a worker that offers workflow gone: no live process has its code"},
			"a result behind a lock": {func(c perdure.Client) error {
				_, err := perdure.DeclareWorkflow[string, string]("flow").Execution(perdure.RawKey("lock")).Result(c)
				return err
			}, "flow/lock waits for the lock of box/b, held by flow/holder"},
			"a task": {func(c perdure.Client) error {
				_, err := stallUnserved.Execution(perdure.RawKey("lone-task-without-workers")).Result(c)
				return err
			}, "queue nobody, activity unserved: no live process serves it"},
			"a call of a locked entity": {func(c perdure.Client) error {
				_, err := stallPut.Call(c, "b", 1)
				return err
			}, "box/b waits for the lock of box/b, held by flow/holder"},
			"a call of an entity without code": {func(c perdure.Client) error {
				_, err := stallGhost.Call(c, "x", 1)
				return err
			}, "ghost/x waits for a worker that offers entity ghost: no live process has its code"},
			"a call in line": {func(c perdure.Client) error {
				_, err := w.squeeze.Call(c, "a", 1)
				return err
			}, "alley/a waits for alley/a: earlier calls are being made, squeeze since"},
			"code that blocks": {func(c perdure.Client) error {
				_, err := w.deaf.Execution(perdure.RawKey("k")).Result(c)
				return err
			}, "deaf/k blocks outside durable calls"},
			"an execution whose rows the store refuses": {func(c perdure.Client) error {
				// On a very busy machine, another node may have taken over the shard, and may not
				// have tried to write yet. The signal makes it try.
				x := refusedFlow.Execution(perdure.RawKey("k"))
				wantError(w.t, "a signal", stallWord.Send(caller(w.t, p.app), x, "go on"), perdure.ErrBlocked, "not this one")
				_, err := refusedFlow.Execution(perdure.RawKey("k")).Result(c)
				return err
			}, "refused/k is quarantined"},
			"a call of an entity whose rows the store refuses": {func(c perdure.Client) error {
				_, err := stallPut.Call(c, "refused", 1)
				return err
			}, "not this one"},
			"a call of an entity whose row is damaged": {func(c perdure.Client) error {
				_, err := stallPut.Call(c, "damaged", 1)
				return err
			}, "cannot be read"},
			"an update": {func(c perdure.Client) error {
				_, err := stallChange.Call(c, perdure.Ref{Workflow: "flow", Key: "timer"}, "x")
				return err
			}, "flow/timer waits for a timer until"},
		} {
			untilExplained(w.t, 100*time.Millisecond, func(limit time.Duration) string {
				ctx, cancel := context.WithTimeout(w.t.Context(), limit)
				defer cancel()
				err := try.do(p.app.With(ctx))
				if err != nil && strings.Contains(err.Error(), try.want) {
					return ""
				}
				return fmt.Sprintf("%s: %s: %v; want %q in it", p.name, what, err, try.want)
			})
		}

		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		_, err := stallUnserved.Execution(perdure.RawKey("lone-task-without-workers")).Result(p.app.With(ctx))
		if err == nil || strings.Contains(err.Error(), "no live process") {
			w.t.Errorf("%s: the error of a cancelled call is %v, want an error without an explanation", p.name, err)
		}
	}
}
