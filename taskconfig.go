package perdure

import (
	"errors"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// TaskConfig says how a process executes tasks. The zero value is right for most programs.
type TaskConfig struct {
	// Slots is how many tasks run at the same time. The default is 100. With a negative number,
	// this process executes no tasks.
	Slots int
	// Prefetch is how many more tasks the process claims before it has a slot for them. The default
	// is 0. Prefetch saves a round trip for tasks that take milliseconds. Longer tasks would wait
	// in this process while other processes are free.
	Prefetch int
	// Queues are the queues that the process serves in addition to DefaultQueue and the queues that
	// activities name. List here the queues that only calls and submissions name.
	Queues []string
	// HighLoad and LowLoad are shares of Slots and Prefetch together, from 0 to 1. When the load
	// reaches HighLoad, the process stops claiming tasks until the load is down to LowLoad. Tasks
	// that arrive at the same moment may still take all slots. Without HighLoad, only a full
	// process stops claiming tasks.
	HighLoad, LowLoad float64
	// HighMemory and LowMemory are shares of GOMEMLIMIT, with the same effect as HighLoad and
	// LowLoad. The defaults are 0.9 and 0.8. If only HighMemory is set, LowMemory is eight ninths
	// of HighMemory. Without GOMEMLIMIT, both have no effect.
	HighMemory, LowMemory float64
	// DrainTimeout is how long Close waits for running tasks. After that time their contexts end,
	// and the process gives the tasks back without using up an attempt. The default is the
	// DrainTimeout of embedded.Config or Dialer.
	DrainTimeout time.Duration
}

const maxSlots = 100_000

// check returns an error that names everything that is wrong with the settings.
func (c *TaskConfig) check() error {
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fault.New(fault.Invalid, "tasks: "+format, args...))
	}

	if c.Slots > maxSlots || c.Prefetch > maxSlots {
		wrong("Slots is %d and Prefetch is %d, at most %d each are allowed", c.Slots, c.Prefetch, maxSlots)
	}
	if c.Prefetch < 0 {
		wrong("Prefetch is %d, must be >= 0", c.Prefetch)
	}

	if c.DrainTimeout < 0 {
		wrong("DrainTimeout is %s, must be >= 0", c.DrainTimeout)
	}
	for _, name := range c.Queues {
		if err := checkText("the name of queue", name, maxName); err != nil {
			wrong("%w", err)
		}
	}

	for _, m := range []struct {
		name      string
		high, low float64
	}{{"Load", c.HighLoad, c.LowLoad}, {"Memory", c.HighMemory, c.LowMemory}} {
		if m.high == 0 && m.low == 0 {
			continue
		}
		if !(m.low >= 0 && m.low < m.high && m.high <= 1) { // refuses NaN too
			wrong("High%s is %v and Low%s is %v: they are shares from 0 to 1, and the low value must be smaller", m.name, m.high, m.name, m.low)
		}
	}
	return errors.Join(problems...)
}
