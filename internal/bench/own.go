package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
)

// The systems with a server and a store of their own.
const (
	Restate  = "restate"
	Temporal = "temporal"
)

// What Perdure behind a server must reach against servers with a store of their own, on every kind
// of store.
const (
	overRestate  = 3.0  // times the rate of Restate
	overTemporal = 60.0 // times the rate of Temporal's server for development
)

// ownStore makes empty directories for the stores of systems that bring one along.
type ownStore string

// Kind is Own.
func (ownStore) Kind() Kind { return Own }

// Fresh makes an empty directory.
func (o ownStore) Fresh(context.Context) (Place, func() error, error) {
	dir, err := os.MkdirTemp(string(o), "bench-")
	if err != nil {
		return Place{}, nil, err
	}
	return Place{Kind: Own, Path: dir}, func() error { return os.RemoveAll(dir) }, nil
}

// Describe names the file system.
func (o ownStore) Describe(context.Context) (string, error) {
	return "Files on " + fileSystem(string(Directory(o))), nil
}

// LeaveOut adds a line to the report about a system that does not take part.
func (r *Report) LeaveOut(system string, why error) {
	r.Left = append(r.Left, fmt.Sprintf("%s is left out: %v", system, why))
}

// overOwn divides the rate of Perdure behind a server on a store by the rate of a system with its
// own store in the same round, and returns the median over the rounds.
func (r *Report) overOwn(s *Store, peer string, w Workload) (_ float64, ok bool) {
	if r.Own == nil {
		return 0, false
	}

	var values []float64
	for _, ours := range s.of(Dial, w) {
		for _, theirs := range r.Own.of(peer, w) {
			if theirs.Round == ours.Round {
				values = append(values, rate(ours.Result)/rate(theirs.Result))
			}
		}
	}
	return median(values)
}

// ownRules returns the bars for Perdure behind a server against systems with a store of their own.
// There are none if Perdure behind a server does not take part.
func (r *Report) ownRules() []rule {
	if !slices.Contains(r.Peers, Dial) {
		return nil
	}
	against := func(peer, name string, want float64) rule {
		return rule{
			Throughput, peer, fmt.Sprintf("throughput over Dial against %s, %d clients", name, r.Clients), true, both(want), "×",
			func(s *Store) (float64, bool) { return r.overOwn(s, peer, Throughput) },
		}
	}
	return []rule{against(Restate, "Restate", overRestate), against(Temporal, "Temporal's dev server", overTemporal)}
}

// own writes the section about systems with a store of their own.
func (r *Report) own(p *page) {
	if r.Own == nil {
		return
	}
	p.line("")
	p.line("## Servers with a store of their own")
	p.line("")
	p.line("%s.", r.Own.Description)
	p.line("These systems bring their own store along, so they were measured once per run and not once per kind of store. They took turns with the systems on %s.", r.Stores[0].Kind)
	p.line("")
	for _, system := range r.Peers {
		if about, own := r.Servers[system]; own {
			p.line("- %s: %s", system, about)
		}
	}

	r.Own.failures(p)
	for _, w := range []Workload{Throughput, Latency} {
		if len(r.Own.systems(r, w)) > 0 {
			r.ownTable(p, w)
		}
	}
}

// ownTable writes the measurements of a workload, and next to them the measurements of Perdure
// behind a server.
func (r *Report) ownTable(p *page, w Workload) {
	columns := []string{"system", "store", "workflows/s"}
	for _, s := range r.Stores {
		columns = append(columns, "ours over Dial on "+string(s.Kind)+" is faster by")
	}
	p.line("")
	p.line("### Three sequential no-op steps through a server, clients waiting for the result: %d", r.clients(w))
	p.table(append(columns, "p50 ms", "p99 ms",
		"CPU s / 1,000 workflows: process with clients and worker + server (ours: clients + server + worker + database)",
		"RSS MiB of the server", "others' CPU %", "workflows/s without them (estimate)")...)

	row := func(s *Store, system string, parts ...func(Result) float64) {
		cell := s.cells(system, w)
		cells := []string{system, string(s.Kind), cell(rate)}
		for _, x := range r.Stores {
			factor := "–"
			if v, ok := r.overOwn(x, system, w); ok {
				factor = number(v) + "×"
			}
			cells = append(cells, factor)
		}
		p.row(append(cells, cell(p50), cell(p99), sumCell(cell, parts...), cell(rssServer), cell(others), cell(alone))...)
	}
	for _, s := range r.Stores {
		if len(s.of(Dial, w)) > 0 {
			row(s, Dial, cpuOurs, cpuServer, cpuWorker, cpuStore)
		}
	}
	for _, system := range r.Own.systems(r, w) {
		row(r.Own, system, cpuOurs, cpuServer)
	}
}
