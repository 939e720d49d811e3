package perdure

import (
	"errors"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// TaskConfig is how a process executes tasks. The zero value is right for most programs.
type TaskConfig struct {
	// Slots is how many tasks run at once; 100. A negative number has this process execute none, although it has their code.
	Slots int
	// Prefetch is how many more are claimed before there is a slot for them. With tasks of milliseconds it spares them the way; with longer ones it makes them
	// wait here while other processes are free. None by default.
	Prefetch int
	// Queues are served beside those that the activities name, and beside DefaultQueue: those that calls and submissions name.
	Queues []string
	// HighLoad and LowLoad are shares of Slots and Prefetch together. Once so many are taken, no more are claimed until it has come down to the low one. It is no
	// bound: tasks that come at the same moment may take all slots. By default there are no such marks: a full process claims no more anyway.
	HighLoad, LowLoad float64
	// HighMemory and LowMemory are shares of the memory that the process may have (GOMEMLIMIT): 0.9 and 0.8; the low one is eight ninths of the high one when only that is
	// given. Without such a limit they mean nothing.
	HighMemory, LowMemory float64
	// DrainTimeout is how long Close waits for tasks that run. Then their contexts end, and they are given back without consuming an attempt. As that of steps by default.
	DrainTimeout time.Duration
}

const maxSlots = 100_000

// check says what is wrong with the settings: all of it.
func (c *TaskConfig) check() error {
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fault.New(fault.Invalid, "tasks: "+format, args...))
	}
	if c.Slots > maxSlots || c.Prefetch > maxSlots {
		wrong("%d slots and %d more are too many, at most %d each are allowed", c.Slots, c.Prefetch, maxSlots)
	}
	if c.Prefetch < 0 {
		wrong("Prefetch is %d, which is less than nothing", c.Prefetch)
	}
	if c.DrainTimeout < 0 {
		wrong("DrainTimeout is %s, which is less than nothing", c.DrainTimeout)
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
		if !(m.low >= 0 && m.low < m.high && m.high <= 1) { // also when one is not a number
			wrong("High%s is %v and Low%s is %v: they are shares from 0 to 1, and the low one is smaller", m.name, m.high, m.name, m.low)
		}
	}
	return errors.Join(problems...)
}
