package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// Perdure is the name of our own system.
const Perdure = "perdure"

// Options select what to measure. Places is required.
type Options struct {
	Places []Provider
	// Peers are further systems by name. They take part in the workloads that compare systems: all
	// except History and Open. The child processes must know them too.
	Peers     map[string]Peer
	Workloads []Workload    // all when nil
	Rounds    int           // how often each system runs each workload that compares; 3 when 0
	Duration  time.Duration // of a measurement in which clients repeat an operation; 3 s when 0
	Clients   int           // clients of such a measurement; 64 when 0
	Sleepers  int           // 100,000 when 0
	Tasks     int           // 50,000 when 0
	// Wait is the longest time that each measurement waits until other programs use little of the
	// machine.
	Wait time.Duration
	// OwnDirectory is the directory for the stores of systems that bring one along. Default: the
	// temporary directory.
	OwnDirectory string
	// Profile is a directory for profiles of Perdure, or "". Profiles exist for the workloads that
	// compare systems, except recovery.
	Profile  string
	Command  []string          // starts a child; this executable without arguments when nil
	Progress func(line string) // receives one line per measurement; may be nil
}

func (o Options) withDefaults() (Options, error) {
	if len(o.Places) == 0 {
		return o, errors.New("no store to measure")
	}
	if o.Workloads == nil {
		o.Workloads = Workloads
	}

	for _, w := range o.Workloads {
		if !slices.Contains(Workloads, w) {
			return o, fmt.Errorf("unknown workload %q; there are %v", w, Workloads)
		}
	}

	if o.Rounds <= 0 {
		o.Rounds = 3
	}
	if o.Duration <= 0 {
		o.Duration = 3 * time.Second
	}
	if o.Clients <= 0 {
		o.Clients = 64
	}
	if o.Sleepers <= 0 {
		o.Sleepers = 100_000
	}
	if o.Tasks <= 0 {
		o.Tasks = 50_000
	}

	if o.Command == nil {
		self, err := os.Executable()
		if err != nil {
			return o, err
		}
		o.Command = []string{self}
	}

	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o, nil
}

// Run runs all measurements. If a measurement fails, the report contains its error, and the others
// continue. Run returns an error only for wrong options, or if ctx ends.
func Run(ctx context.Context, o Options) (*Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}

	report := &Report{
		Time: time.Now().UTC().Truncate(time.Second), Machine: describeMachine(),
		Clients: o.Clients, Sleepers: o.Sleepers, Tasks: o.Tasks, Duration: o.Duration, Rounds: o.Rounds, Peers: slices.Sorted(maps.Keys(o.Peers)),
	}
	own, err := o.own(ctx, report)
	if err != nil {
		return nil, err
	}
	for _, p := range o.Places {
		s := o.measure(ctx, p, own)
		own = nil // systems with a store of their own are measured once
		report.Stores = append(report.Stores, s)
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
	}

	return report, nil
}

// own adds the systems with a store of their own to the report, and returns where their results
// belong. It returns nil if no such system takes part.
func (o Options) own(ctx context.Context, r *Report) (_ *Store, err error) {
	for name, p := range o.Peers {
		if p.Server == "" || !slices.ContainsFunc(o.Workloads, p.takes) {
			continue
		}
		if r.Own == nil {
			r.Own, r.Servers = &Store{Kind: Own}, map[string]string{}
			if r.Own.Description, err = ownStore(o.OwnDirectory).Describe(ctx); err != nil {
				return nil, err
			}
		}
		r.Servers[name] = fmt.Sprintf("%s; %s per measurement", p.Server, max(o.Duration, p.Least))
	}
	return r.Own, nil
}

// measure runs all measurements on one kind of store. If own is not nil, systems with a store of
// their own take turns with the others, and own gets their results.
func (o Options) measure(ctx context.Context, p Provider, own *Store) *Store {
	s := &Store{Kind: p.Kind()}
	s.note(o.limits(ctx, p, s))
	for _, w := range o.Workloads {
		rounds, systems := o.Rounds, []string{Perdure}
		if w == History || w == Open { // only Perdure, and one run has all points
			rounds = 1
		} else {
			systems = append(systems, slices.DeleteFunc(o.taking(w), func(name string) bool {
				return own == nil && o.Peers[name].Server != ""
			})...)
		}

		for round := range rounds {
			for _, system := range systems {
				if ctx.Err() != nil {
					return s
				}
				peer, place, to := o.Peers[system], p, s
				if peer.Server != "" {
					place, to = ownStore(o.OwnDirectory), own
				}
				job := Job{
					System: system, Workload: w, Duration: max(o.Duration, peer.Least), Clients: o.Clients, Sleepers: o.Sleepers, Tasks: o.Tasks,
				}
				if system == Perdure && round == 0 {
					job.Profile = o.Profile
				}
				awaitQuiet(ctx, o.Wait)
				begin := time.Now()
				r, err := o.one(ctx, place, job)
				o.Progress(fmt.Sprintf("%-9s %-16s %-12s round %d of %d  %4.1f s  %s",
					place.Kind(), w, system, round+1, rounds, time.Since(begin).Seconds(), r.brief(err)))
				if to.note(err) {
					to.Results = append(to.Results, Round{Round: round, Result: r})
				}
			}
		}
	}

	return s
}

// taking returns the peers that take part in a workload.
func (o Options) taking(w Workload) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(o.Peers)) {
		if o.Peers[name].takes(w) {
			names = append(names, name)
		}
	}
	return names
}

// limits measures the store without an engine.
func (o Options) limits(ctx context.Context, p Provider, s *Store) error {
	var err error
	if s.Description, err = p.Describe(ctx); err != nil {
		return err
	}
	place, remove, err := p.Fresh(ctx)
	if err != nil {
		return err
	}

	awaitQuiet(ctx, o.Wait)
	const each = 700 * time.Millisecond
	dir, err := os.MkdirTemp(syncDirectory(p), "bench-")
	if err == nil {
		s.Sync, err = measureSync(dir, each)
		err = errors.Join(err, os.RemoveAll(dir))
	}

	var lerr error
	s.Limits, lerr = measureLimits(ctx, place, each)
	o.Progress(fmt.Sprintf("%-9s raw: %.0f flushes/s, %.0f fenced commits/s, %.0f rows/s in large ones",
		p.Kind(), s.Sync.Commits, s.Limits.Fenced.Commits, s.Limits.Batched.RowRate()))
	return errors.Join(err, lerr, remove())
}

// syncDirectory returns the directory in which the latency of the disk is measured: the directory
// of the files, or the temporary directory.
func syncDirectory(p Provider) string {
	if d, ok := p.(Directory); ok {
		return string(d)
	}
	return ""
}

// one runs a job on a fresh store.
func (o Options) one(ctx context.Context, p Provider, job Job) (r Result, err error) {
	place, remove, err := p.Fresh(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	job.Place = place
	command := o.Command
	if other, ok := o.Peers[job.System].Commands[place.Kind]; ok {
		command = other
	}

	if job.Workload == Recovery {
		first := job
		first.Workload = crash
		if _, err := spawn(ctx, command, first); err != nil {
			return r, err
		}
	}

	return spawn(ctx, command, job)
}
