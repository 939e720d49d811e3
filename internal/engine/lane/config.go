package lane

import (
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Config is what a lane needs to know. Zero fields take the defaults.
type Config struct {
	Ref    store.LaneRef // fence of this lane
	Shards int           // of the cluster
	Lanes  int           // of the node; generations tell lanes apart by the remainder
	Limits core.Limits
	// NewRun draws a fresh id.
	NewRun func() model.RunID
	// Board is who executes tasks; nil when nobody ever does.
	Board Board
	// Watched has the lane tell facts; see Output.
	Watched bool
	// NewTrace draws the trace of a run that nobody traces who started it; nil when there is none.
	NewTrace func(model.Address) string

	MaxBatchRows  int           // rows per batch; 2,000
	MaxBatchBytes int           // bytes per batch, and one input more; 4 MiB
	MaxBytes      int           // of inputs, batches and backlogs; 64 MiB
	MaxKeptBytes  int           // of reports for quarantined runs, and half of it for one; 128 MiB
	MaxMail       int           // of messages of other shards that wait in memory, and one more; a page of mail has a quarter of it; 16 MiB
	MaxHeld       int           // bytes of histories that workers hold; 256 MiB, shared by the lanes of the node
	KeepIdle      int           // bytes of the state of a run that stay in memory while nobody can continue it; 2 KiB
	MaxBacklog    int           // inputs that wait for one address; 10,000
	MaxWait       time.Duration // how long requests wait for one address, of which more than PerKey do, before others are refused; 5 s
	PerKey        int           // inputs of one address per batch; 64
	MaxLoads      int           // reads in flight; 64
	TimerWindow   int           // timers in memory; 50,000
	TimerHorizon  time.Duration // how far ahead timers are read; 30 s
	DrainWait     time.Duration // how long a shard that is given up waits for running steps; 5 s
	QuarantineFor time.Duration // until a quarantined address is tried again; 1 min
	Retention     time.Duration // how long closed runs are kept that have no time of their own; nothing is removed when it is 0
	RetainEvery   time.Duration // between two looks for runs to remove, or up to a half less; 1 min
}

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
	set(&c.TimerWindow, 50_000)
	setD(&c.MaxWait, 5*time.Second)
	setD(&c.TimerHorizon, 30*time.Second)
	setD(&c.DrainWait, 5*time.Second)
	setD(&c.QuarantineFor, time.Minute)
	setD(&c.RetainEvery, time.Minute)
	if c.Limits == (core.Limits{}) {
		c.Limits = core.DefaultLimits
	}
}
