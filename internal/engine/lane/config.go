package lane

import (
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Config configures a lane. Zero fields have the defaults that their comments name.
type Config struct {
	// Ref is the fence of this lane. Every batch carries it, and the store refuses a batch with an
	// older fence.
	Ref store.LaneRef
	// Layout says which address belongs to which shard.
	Layout model.Layout
	// Lanes is the number of lanes of the node. Default 1. A lane uses only the generations whose
	// remainder, after division by Lanes, is its own number.
	Lanes int
	// Limits bound histories. Default core.DefaultLimits.
	Limits core.Limits
	// NewRun draws a fresh id. A simulation draws the same ids each time.
	NewRun func() model.RunID
	// Board proposes which worker executes a task. It is nil if the node executes no tasks.
	Board Board
	// Watched makes the lane report facts, see Output.Facts.
	Watched bool
	// WantsChanges reports whether the lane should report changes, see Output.Changes. The lane
	// asks once per commit. Nil means never.
	WantsChanges func() bool
	// NewTrace creates a trace for a run whose starter sent none; nil for no traces.
	NewTrace func(model.Address) string

	// Reunion is how long the lane reserves the runs of acquired shards for the workers that held
	// them under the last owner. With 0, any worker gets them immediately. See reunion.
	Reunion time.Duration
	// AskFor is the longest time for which the lane reserves these runs while it waits for the
	// other nodes to say what their workers hold. See Lane.EndReunion. It is 0 if there are no
	// other nodes.
	AskFor time.Duration

	// AheadWait is how long the lane keeps a batch open for the results of calls that run ahead of
	// its commit, see ahead.go. At 0 it does not wait, but calls run ahead all the same.
	AheadWait time.Duration

	// MaxBatchRows bounds the rows of a batch. Default 2,000.
	MaxBatchRows int
	// MaxBatchBytes bounds the bytes of a batch. Default 4 MiB. A batch may exceed the bound by one
	// input. Batches get smaller while the store does not take them in time.
	MaxBatchBytes int
	// MaxBytes bounds the bytes of inputs that wait or are not committed. Default 64 MiB. Above it
	// the lane is Full.
	MaxBytes int
	// MaxKeptBytes bounds the bytes of reports that wait for quarantined runs. Default 128 MiB. The
	// reports of one run may take half of this limit.
	MaxKeptBytes int
	// MaxMail bounds the bytes of messages of other shards that wait in memory. Default 16 MiB.
	// They may exceed the bound by one message. A page of mail has at most a quarter of this limit.
	MaxMail int
	// MaxHeld bounds the bytes of histories that workers hold. Default 256 MiB, shared by the lanes
	// of the node. A run without room waits.
	MaxHeld int
	// KeepIdle is a size in bytes. Default 2 KiB. While a run or an entity waits for a worker, its
	// state stays in memory only if it is not larger than KeepIdle, or if the store does not have
	// all of it.
	KeepIdle int

	// MaxBacklog bounds the inputs that wait for one address. Default 10,000. The lane refuses
	// further requests as fault.Exhausted.
	MaxBacklog int
	// PerKey bounds the inputs of one address in a batch. Default 64.
	PerKey int
	// MaxWait decides when the lane refuses new requests for an address. If the oldest request for
	// the address has waited for longer, the lane refuses new ones as soon as more than PerKey
	// requests wait. Default 5 s.
	MaxWait time.Duration
	// MaxLoads bounds the reads in flight. Default 64.
	MaxLoads int

	// EraIDs is how many ids of clients the lane serves in an era, see eras. Default 16,384. The
	// lane keeps a digest of eight bytes for each of them until the next era is over.
	EraIDs int

	// TimerWindow bounds the timers in memory. Default 50,000.
	TimerWindow int
	// TimerHorizon is how far ahead the lane reads timers. Default 30 s.
	TimerHorizon time.Duration
	// DrainWait is how long a shard that is being given up waits for running steps. Default 5 s.
	DrainWait time.Duration
	// QuarantineFor is how long an address stays quarantined before the lane tries it again.
	// Default 1 min.
	QuarantineFor time.Duration
	// MaxPutOff is how many messages a lane puts off within QuarantineFor. Default 1,000. If there
	// are more, the first MaxPutOff messages wait for QuarantineFor, the next ones for twice as
	// long, and so on.
	MaxPutOff int
	// Retention is how long the lane keeps closed runs that have no retention time of their own. At
	// 0 it removes no run.
	Retention time.Duration
	// TenantRetention replaces Retention for the tenants that it names. Lane.Retain changes it.
	TenantRetention map[string]time.Duration
	// RetainEvery is the time between two searches for runs to remove. Default 1 min. Each lane
	// subtracts a part of this time, at most half of it, so that not all lanes search at the same
	// time. The part depends on the node and on the lane.
	RetainEvery time.Duration
}

// withDefaults fills in the defaults. If the lanes of a node share a limit, the lane gets its part
// of it.
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
