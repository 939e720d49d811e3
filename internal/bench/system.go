package bench

import (
	"context"
	"slices"
	"time"
)

// System is a durable-execution library under test. Many goroutines may call its methods.
type System interface {
	// Three runs a workflow of three sequential no-op steps and waits for its result.
	Three(ctx context.Context, key string) error
	// Chain runs a workflow of n sequential steps and waits for its result. If there already is a
	// workflow with this key, Chain waits for the result of that workflow.
	Chain(ctx context.Context, key string, n int) error
	// FanOut runs a workflow of n parallel no-op steps and waits for its result.
	FanOut(ctx context.Context, key string, n int) error
	// StartSleep starts a workflow that sleeps for d.
	StartSleep(ctx context.Context, key string, d time.Duration) error
	// Close releases everything.
	Close() error
}

// Caller is a system that has entities.
type Caller interface {
	// Call changes the state of an entity and waits for the answer.
	Call(ctx context.Context, key string) error
}

// Mover is a system whose workflows call and lock entities. Each method takes the key of a
// workflow, and a pair of keys of two different entities.
type Mover interface {
	// CallTwo runs a workflow that calls both entities, one after the other.
	CallTwo(ctx context.Context, key string, pair [2]string) error
	// Transfer runs a workflow that locks both entities, calls one after the other, and unlocks
	// them.
	Transfer(ctx context.Context, key string, pair [2]string) error
}

// Carrier is a system whose workflows and steps can have large inputs and results.
type Carrier interface {
	// Carry runs a workflow with value, which is large, as its input. Each of the three steps of
	// the workflow returns value, and so does the workflow itself.
	Carry(ctx context.Context, key, value string) error
}

// Alarm is a system that reports when sleeping workflows continue.
type Alarm interface {
	// SleepMany starts one workflow for each element of until, which sleeps until that time. When
	// workflow i continues, it calls woken(i).
	SleepMany(ctx context.Context, until []time.Time, woken func(int)) error
}

// Parted is a system with processes other than this one.
type Parted interface {
	// Processes returns the ids of the processes of the server. workers has the ids of the
	// processes of the worker, and is empty if the worker runs in this process.
	Processes() (servers, workers []int)
}

// Opener opens a system on a store. Each step of a Chain calls body with its number, from 0, and
// does nothing else.
type Opener func(ctx context.Context, place Place, body func(step int)) (System, error)

// Peer is a system to compare with, and its capabilities.
type Peer struct {
	Workflows Opener      // nil when the system runs no workflows
	Queue     QueueOpener // nil when the system has no queue
	Entities  bool        // each System that Workflows opens is also a Caller and a Mover
	Values    bool        // each System that Workflows opens is also a Carrier and an Alarm

	// Server describes the server program and the store of a system that brings both along. Such a
	// system takes part in Throughput and Latency, once per run and not once per kind of store. Its
	// Place has the kind Own. Server is "" if the system uses PostgreSQL or SQLite.
	Server string
	// Least is the shortest duration of a measurement of the system.
	Least time.Duration

	// Only are the workloads that the system takes part in; nil means all that it can run.
	Only []Workload

	// Commands are the commands that start the child processes of the system, by kind of store. On
	// a kind of store without an entry, Options.Command starts them. A kind has an entry if its
	// measurements need another version of the system, which is linked into another program. That
	// program must also call Child.
	Commands map[Kind][]string
}

// takes reports whether the system takes part in a workload.
func (p Peer) takes(w Workload) bool {
	switch {
	case p.Only != nil && !slices.Contains(p.Only, w):
		return false
	case p.Server != "":
		return w == Throughput || w == Latency
	case w.queued():
		return p.Queue != nil
	case w.entities():
		return p.Entities
	case w == Payload || w == Timers:
		return p.Values
	default:
		return p.Workflows != nil
	}
}

// Kind is a kind of store.
type Kind string

// The kinds of store that can be measured.
const (
	Postgres Kind = "postgres"
	SQLite   Kind = "sqlite"
)

// Own is the store that a system brings along.
const Own Kind = "own"

// Place is where a system stores its data.
type Place struct {
	Kind Kind
	URL  string // of a database, when Kind is Postgres
	Path string // of a file, when Kind is SQLite; of an empty directory, when Kind is Own
}
