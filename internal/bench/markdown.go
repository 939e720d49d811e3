package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// WriteMarkdown writes the report for people.
func (r *Report) WriteMarkdown(w io.Writer) error {
	p := &page{}
	p.line("# Perdure benchmark, %s", r.Time.Format("2006-01-02 15:04 MST"))
	p.line("")
	p.line("%s.", r.Machine)
	p.line("Client, system and database share the machine. Medians of %d rounds; systems take turns, ratios are formed within a round. %s per measurement in which clients repeat something.",
		r.Rounds, r.Duration)

	if most := r.loudest(); most > noisy {
		p.line("")
		p.line("**The machine was not quiet**: others used up to %.0f %% of it. Trust CPU, ratios to bare commits and memory; run again for the rest.", 100*most)
	}

	for _, left := range r.Left {
		p.line("")
		p.line("%s.", left)
	}

	if len(r.Bars) > 0 {
		p.line("")
		p.line("## Bars")
		p.table("store", "requirement", "measured", "bar", "")
		for _, b := range r.Bars {
			p.row(string(b.Kind), b.Name, b.got(), b.want(), verdict(b.IsMet()))
		}
	}

	for _, s := range r.Stores {
		r.store(p, s)
	}
	r.own(p)
	_, err := io.WriteString(w, p.String())
	return err
}

func verdict(ok bool) string {
	if ok {
		return "pass"
	}
	return "**FAIL**"
}

func (b Bar) got() string {
	if !b.Measured {
		return "–"
	}
	return number(b.Got) + b.Unit
}

func (b Bar) want() string {
	if b.AtLeast {
		return "≥ " + number(b.Want) + b.Unit
	}
	return "≤ " + number(b.Want) + b.Unit
}

// store writes the section of one kind of store.
func (r *Report) store(p *page, s *Store) {
	p.line("")
	p.line("## %s", s.Kind)
	p.line("")
	p.line("%s.", s.Description)

	s.failures(p)

	flush, bytes := s.flushName()+" / step", "WAL B / step"
	if s.Kind == SQLite {
		bytes = "written B / step"
	}

	for _, w := range []Workload{Throughput, Latency} {
		if len(s.systems(r, w)) == 0 {
			continue
		}
		p.line("")
		p.line("### Three sequential no-op steps, clients waiting for the result: %d", r.clients(w))
		p.table("system", "workflows/s", "ours is faster by", "steps/s", "p50 ms", "p99 ms", "CPU s / 1,000 workflows: "+cpuParts, flush, bytes, "allocations / workflow (KiB)", "RSS MiB", "others' CPU %", "workflows/s without them (estimate)")
		for _, system := range s.systems(r, w) {
			cell := s.cells(system, w)
			p.row(system, cell(rate), s.factor(system, w), cell(func(r Result) float64 { return steps * rate(r) }), cell(p50), cell(p99),
				cpuCell(system, cell, same), cell(flushes), cell(written), cell(allocs)+" ("+cell(garbage)+")", cell(rss), cell(others), cell(alone))
		}
	}

	s.calls(p, r)
	s.transfers(p, r)
	s.payload(p, r)
	if systems := s.systems(r, FanOut, Sequence, Recovery); len(systems) > 0 {
		s.one(p, systems)
	}
	s.growth(p)
	s.timers(p, r)
	s.tasks(p, r)
	s.limits(p)
}

// clients returns how many clients a workload of three steps has.
func (r *Report) clients(w Workload) int { return Job{Workload: w, Clients: r.Clients}.clients() }

// failures writes the errors of the measurements.
func (s *Store) failures(p *page) {
	for _, e := range s.Errors {
		p.line("")
		p.line("**Failed:**")
		p.line("")
		p.line("    %s", strings.ReplaceAll(e, "\n", "\n    "))
	}
}

// calls writes the measurements of entities.
func (s *Store) calls(p *page, r *Report) {
	systems := s.systems(r, Calls)
	if len(systems) == 0 {
		return
	}
	p.line("")
	p.line("### Calls of entities, each client with an entity of its own and waiting for the answer: %d", r.Clients)
	p.table("system", "calls/s", "p50 ms", "p99 ms", "CPU µs / call: "+cpuParts, "others' CPU %", "calls/s without them (estimate)")
	for _, system := range systems {
		cell := s.cells(system, Calls)
		p.row(system, cell(rate), cell(p50), cell(p99), cpuCell(system, cell, micro), cell(others), cell(alone))
	}
}

// transfers writes the measurements of workflows that call and lock entities.
func (s *Store) transfers(p *page, r *Report) {
	workloads := []Workload{TwoCalls, Transfer, Transfers, HotTransfers, RandomTransfers}
	if len(s.systems(r, workloads...)) == 0 {
		return
	}
	names := map[Workload]string{
		TwoCalls:        fmt.Sprintf("call two entities, %d clients with two each", r.Clients),
		Transfer:        "lock two entities, call both, unlock; one client",
		Transfers:       fmt.Sprintf("the same, %d clients with two each", r.Clients),
		HotTransfers:    fmt.Sprintf("the same, %d clients and the same two", r.Clients),
		RandomTransfers: fmt.Sprintf("the same, %d clients and two of %d at random", r.Clients, crowdOf),
	}

	p.line("")
	p.line("### Workflows that call and lock entities, clients waiting for the result")
	p.table("system", "workflow", "workflows/s", "p50 ms", "p99 ms", "CPU ms / workflow: "+cpuParts, s.flushName()+" / workflow", "written KB / workflow", "allocations / workflow (KiB)", "others' CPU %", "workflows/s without them (estimate)")
	for _, w := range workloads {
		for _, system := range s.systems(r, w) {
			cell := s.cells(system, w)
			p.row(system, names[w], cell(rate), cell(p50), cell(p99), cpuCell(system, cell, same), cell(taskFlushes), cell(writtenKB),
				cell(allocs)+" ("+cell(garbage)+")", cell(others), cell(alone))
		}
	}
}

// flushName returns what Flushes counts on this kind of store.
func (s *Store) flushName() string {
	if s.Kind == SQLite {
		return "commits"
	}
	return "flushes"
}

// payload writes the measurements of large values.
func (s *Store) payload(p *page, r *Report) {
	systems := s.systems(r, Payload)
	if len(systems) == 0 {
		return
	}
	p.line("")
	p.line("### Three sequential steps, input and results of %d KiB each, clients waiting for the result: %d", largeBytes>>10, r.Clients)
	p.table("system", "workflows/s", "p50 ms", "p99 ms", "CPU ms / workflow: "+cpuParts, "written KiB / workflow", "allocations / workflow (KiB)", "others' CPU %", "workflows/s without them (estimate)")
	for _, system := range systems {
		cell := s.cells(system, Payload)
		p.row(system, cell(rate), cell(p50), cell(p99), cpuCell(system, cell, same), cell(func(r Result) float64 { return taskWritten(r) / 1024 }),
			cell(allocs)+" ("+cell(garbage)+")", cell(others), cell(alone))
	}
}

// timers writes the results of Timers: many workflows sleep until almost the same moment, and the
// results say how late they continue.
func (s *Store) timers(p *page, r *Report) {
	systems := s.systems(r, Timers)
	if len(systems) == 0 {
		return
	}
	p.line("")
	p.line("### %s workflows that sleep and are due within %s", thousands(alarms), alarmsIn)
	p.table("system", "late: p50 ms", "p99 ms", "all have continued after s", "CPU µs / workflow: "+cpuParts, "allocations / workflow (KiB)", "others' CPU %")
	for _, system := range systems {
		cell := s.cells(system, Timers)
		p.row(system, cell(p50), cell(p99), cell(func(r Result) float64 { return r.Elapsed.Seconds() }), cpuCell(system, cell, micro),
			cell(allocs)+" ("+cell(garbage)+")", cell(others))
	}
}

// cpuParts names the figures of cpuCell.
const cpuParts = "process + database (over Dial: clients + server + worker + database)"

// cpuCell writes the processor time of every process that takes part.
func cpuCell(system string, cell func(func(Result) float64) string, scale func(func(Result) float64) func(Result) float64) string {
	parts := []func(Result) float64{cpuOurs, cpuStore}
	if system == Dial {
		parts = []func(Result) float64{cpuOurs, cpuServer, cpuWorker, cpuStore}
	}
	for i, part := range parts {
		parts[i] = scale(part)
	}
	return sumCell(cell, parts...)
}

// sumCell writes the parts of a sum.
func sumCell(cell func(func(Result) float64) string, parts ...func(Result) float64) string {
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i] = cell(part)
	}
	return strings.Join(texts, " + ")
}

// same returns a figure without scaling it.
func same(figure func(Result) float64) func(Result) float64 { return figure }

// one writes the measurements of single workflows.
func (s *Store) one(p *page, systems []string) {
	p.line("")
	p.line("### One workflow")
	p.table("system", "1,000 parallel steps ms", "2,000 sequential steps: ms / step", "against bare commits", "first step after kill -9 s", "all done s", "finished steps run again")
	for _, system := range systems {
		f, q, c := s.cells(system, FanOut), s.cells(system, Sequence), s.cells(system, Recovery)
		p.row(system, f(p50), q(func(r Result) float64 { return ms(r.Steps) / float64(r.Operations) }), q(overBare), c(firstStep),
			c(func(r Result) float64 { return r.Elapsed.Seconds() }), c(func(r Result) float64 { return float64(r.Repeated) }))
	}
}

// tasks writes the measurements of queues.
func (s *Store) tasks(p *page, r *Report) {
	for _, w := range []Workload{Tasks, Limited, Backlog} {
		systems := s.systems(r, w)
		if len(systems) == 0 {
			continue
		}
		flush, bytes := "flushes / 1,000", "WAL B / task"
		if s.Kind == SQLite {
			flush, bytes = "commits / 1,000", "written B / task"
		}
		p.line("")
		under := ""
		switch w {
		case Limited:
			under = fmt.Sprintf(", under a limit of %d for all", atOnce)
		case Backlog:
			under = ", by a process that is opened after the submission"
		default:
		}
		p.line("### %s no-op tasks from submission, %s at a time, to recorded completion, %d slots%s", thousands(r.Tasks), thousands(bulk), slots, under)
		p.table("system", "tasks/s", "ours is faster by", "of its rate without a limit", "CPU µs / task: "+cpuParts, "rows / task", flush, bytes, "allocations / task (KiB)", "RSS MiB", "others' CPU %", "tasks/s without them (estimate)")

		for _, system := range systems {
			cell := s.cells(system, w)
			part := "–"
			if v, ok := s.kept(system, w, Tasks, rate); ok && w != Tasks {
				part = number(100*v) + " %"
			}
			p.row(system, cell(rate), s.factor(system, w), part, cpuCell(system, cell, micro), cell(taskRows), cell(func(r Result) float64 { return 1000 * taskFlushes(r) }),
				cell(taskWritten), cell(allocs)+" ("+cell(garbage)+")", cell(rss), cell(others), cell(alone))
		}
	}

	if systems := s.systems(r, Pickup); len(systems) > 0 {
		p.line("")
		p.line("### From submission to the start of a task, 20 tasks per second")
		p.table("system", "after the commit: p50 ms", "p99 ms", "after the call: p50 ms", "p99 ms", "CPU µs / task: "+cpuParts, "others' CPU %")
		for _, system := range systems {
			cell := s.cells(system, Pickup)
			p.row(system, cell(p50), cell(p99), cell(fromCall50), cell(fromCall99), cpuCell(system, cell, micro), cell(others))
		}
	}
}

// growth writes the cost of a step at several sizes.
func (s *Store) growth(p *page) {
	for _, g := range []struct {
		w    Workload
		what string
	}{{History, "steps of history"}, {Open, "sleeping executions"}} {
		for _, r := range s.of(Perdure, g.w) {
			p.line("")
			p.line("### Cost of a step by %s", g.what)
			p.table(g.what, "step µs", "bare commit µs", "ratio")
			for _, x := range r.Points {
				p.row(thousands(x.Size), micros(x.Step), micros(x.Bare), number(float64(x.Step)/float64(x.Bare)))
			}
			if g.w == Open {
				p.line("")
				p.line("Each sleeping execution costs %s bytes of memory; they were started at %s per second; %d goroutines are left; RSS %s MiB.",
					thousands(int(r.Sleeper)), thousands(int(r.StartRate)), r.Goroutines, number(rss(r.Result)))
			}
		}
	}
}

// limits writes the raw limits and the share that Perdure reaches.
func (s *Store) limits(p *page) {
	if s.Limits.Single.Commits == 0 {
		return
	}
	p.line("")
	p.line("### Raw limits of the machine, one after the other, and our share")
	p.table("what", "per s", "p50 µs", "p99 µs", "our share")
	put := func(name string, l Limit, share string) {
		p.row(name, number(l.Commits), micros(l.P50), micros(l.P99), share)
	}
	put("append 108 B + fdatasync", s.Sync, "")
	put("commit of one row", s.Limits.Single, "")
	latency, sequence, throughput := "", "", ""

	if v, ok := s.median(Perdure, Latency, p50); ok {
		latency = fmt.Sprintf("one client: %.0f %% (%d such commits take %s of the %s ms of a workflow)",
			100*(steps+1)*ms(s.Limits.Fenced.P50)/v, steps+1, number((steps+1)*ms(s.Limits.Fenced.P50)), number(v))
	}

	if v, ok := s.median(Perdure, Sequence, overBare); ok {
		sequence = fmt.Sprintf("sequential steps: %.0f %%; ", 100/v)
	}
	if v, ok := s.median(Perdure, Throughput, rate); ok {
		throughput = fmt.Sprintf("throughput: %.0f %% (%s of %s rows/s)", 100*v*workflowRows/s.Limits.Batched.RowRate(), number(v*workflowRows), number(s.Limits.Batched.RowRate()))
	}
	put("commit of a fence and one row", s.Limits.Fenced, sequence+latency)
	put(fmt.Sprintf("commit of a fence and %d rows", batchRows), s.Limits.Batched, throughput)
}

// systems returns the systems with results in one of the workloads.
func (s *Store) systems(r *Report, ws ...Workload) (names []string) {
	for _, system := range append([]string{Perdure}, r.Peers...) {
		if slices.ContainsFunc(ws, func(w Workload) bool { return len(s.of(system, w)) > 0 }) {
			names = append(names, system)
		}
	}
	return names
}

// cells returns a function that writes the median of a figure.
func (s *Store) cells(system string, w Workload) func(func(Result) float64) string {
	return func(figure func(Result) float64) string {
		v, ok := s.median(system, w, figure)
		if !ok {
			return "–"
		}
		return number(v)
	}
}

// factor writes our rate divided by the rate of a peer in the same round.
func (s *Store) factor(peer string, w Workload) string {
	v, ok := s.ratio(peer, w, rate)
	if !ok || peer == Perdure {
		return "–"
	}
	return number(v) + "×"
}

func micros(d time.Duration) string { return number(float64(d) / float64(time.Microsecond)) }

// page is a Markdown text under construction.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) {
	p.WriteString(fmt.Sprintf(format, args...) + "\n")
}

// table starts a table.
func (p *page) table(columns ...string) {
	p.line("")
	p.row(columns...)
	p.line("|%s", strings.Repeat("---|", len(columns)))
}

func (p *page) row(cells ...string) { p.line("| %s |", strings.Join(cells, " | ")) }
