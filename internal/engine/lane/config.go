package lane

import (
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Config configures a lane. Zero fields have the defaults that their comments name.
type Config struct {
	// Ref is the fence of this lane: every batch carries it, and the store refuses a batch with an
	// older one.
	Ref store.LaneRef
	// Layout says which address belongs to which shard.
	Layout model.Layout
	// Lanes is the number of lanes of the node; 1. A lane uses only the generations whose
	// remainder, after division by Lanes, is its own number.
	Lanes int
	// Limits bound histories; core.DefaultLimits.
	Limits core.Limits
	// NewRun draws a fresh id. A simulation draws the same ids each time.
	NewRun func() model.RunID
	// Board proposes which worker executes a task. It is nil when no worker ever does.
	Board Board
	// Watched makes the lane report facts, see Output.Facts.
	Watched bool
	// WantsChanges reports whether the lane should report changes, see Output.Changes. The lane
	// asks once per commit. Nil means never.
	WantsChanges func() bool
	// NewTrace creates a trace for a run whose starter sent none; nil for no traces.
	NewTrace func(model.Address) string

	// Reunion is how long the lane keeps the runs of acquired shards for the workers that held them
	// under the last owner; 0 gives them to any worker at once. See reunion.
	Reunion time.Duration
	// AskFor is how long the lane keeps them at most until the other nodes have said what their
	// workers hold, see Lane.EndReunion; 0 if there are no other nodes.
	AskFor time.Duration

	// MaxBatchRows bounds the rows of a batch; 2,000.
	MaxBatchRows int
	// MaxBatchBytes bounds the bytes of a batch, which may exceed it by one input; 4 MiB. Batches
	// get smaller while the store does not take them in time.
	MaxBatchBytes int
	// MaxBytes bounds the bytes of inputs that wait or are not committed; 64 MiB. Above it the
	// lane is Full.
	MaxBytes int
	// MaxKeptBytes bounds the bytes of reports that wait for quarantined runs; 128 MiB. One run may
	// have half of it.
	MaxKeptBytes int
	// MaxMail bounds the bytes of messages of other shards that wait in memory, which may exceed it
	// by one message; 16 MiB. A page of mail has a quarter of it.
	MaxMail int
	// MaxHeld bounds the bytes of histories that workers hold; 256 MiB, shared by the lanes of the
	// node. A run without room waits.
	MaxHeld int
	// KeepIdle is the size of a state in bytes above which a run leaves memory while no worker can
	// continue it; 2 KiB.
	KeepIdle int

	// MaxBacklog bounds the inputs that wait for one address; 10,000. The lane refuses further
	// requests as fault.Exhausted.
	MaxBacklog int
	// PerKey bounds the inputs of one address in a batch; 64.
	PerKey int
	// MaxWait is how long the first request for an address may wait; 5 s. Then the lane refuses
	// further requests when more than PerKey wait.
	MaxWait time.Duration
	// MaxLoads bounds the reads in flight; 64.
	MaxLoads int

	// EraIDs is how many ids of clients the lane serves in an era, see eras; 16,384. The lane keeps
	// eight bytes for each of them until the next era is over.
	EraIDs int

	// TimerWindow bounds the timers in memory; 50,000.
	TimerWindow int
	// TimerHorizon is how far ahead the lane reads timers; 30 s.
	TimerHorizon time.Duration
	// DrainWait is how long a shard that is being given up waits for running steps; 5 s.
	DrainWait time.Duration
	// QuarantineFor is how long an address stays quarantined before the lane tries it again; 1 min.
	QuarantineFor time.Duration
	// MaxPutOff is how many messages a lane puts off within QuarantineFor; 1,000. Further messages
	// wait longer, by another QuarantineFor per MaxPutOff.
	MaxPutOff int
	// Retention is how long the lane keeps closed runs that have no retention time of their own. At
	// 0 it removes no run.
	Retention time.Duration
	// TenantRetention is Retention for tenants that have their own. Lane.Retain changes it.
	TenantRetention map[string]time.Duration
	// RetainEvery is the time between two searches for runs to remove, minus up to a half; 1 min.
	RetainEvery time.Duration
}

// withDefaults fills in the defaults. The lane gets its share of limits that the lanes of a node
// share.
func (c *Config) withDefaults() {
	set := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	setD := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
	}

	set(&c.Lanes, 1)
	set(&c.MaxBatchRows, 2000)
	set(&c.MaxBatchBytes, 4<<20)
	set(&c.MaxBytes, 64<<20)
	set(&c.MaxKeptBytes, 128<<20)
	set(&c.MaxMail, 16<<20)
	set(&c.MaxHeld, 256<<20)
	c.MaxHeld /= c.Lanes
	set(&c.KeepIdle, 2<<10)
	set(&c.MaxBacklog, 10_000)
	set(&c.PerKey, 64)
	set(&c.MaxLoads, 64)
	set(&c.EraIDs, 16<<10)
	set(&c.TimerWindow, 50_000)

	setD(&c.MaxWait, 5*time.Second)
	setD(&c.TimerHorizon, 30*time.Second)
	setD(&c.DrainWait, 5*time.Second)
	setD(&c.QuarantineFor, time.Minute)
	setD(&c.RetainEvery, time.Minute)
	set(&c.MaxPutOff, 1000)

	if c.Limits == (core.Limits{}) {
		c.Limits = core.DefaultLimits
	}
}
