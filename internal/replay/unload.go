package replay

import (
	"time"
)

// unload ends every goroutine of the machine at the call in which it is parked, the last coroutine
// first.
func (m *machine) unload() {
	for n := m.coroutines.last; n != nil; n = m.coroutines.last {
		m.end(n.value)
		m.drop(n.value)
	}
	m.active.Store(nil)
}

// end ends the goroutine of one coroutine. Deferred functions run. If a deferred function makes a
// durable call, that call ends the function too. If the goroutine does not end in time, end logs
// its stack and leaves it behind.
func (m *machine) end(c *Coroutine) {
	if m.gone == nil {
		m.gone = make(chan *Coroutine, 1)
	}
	c.dying.Store(true)

	if c.wait.active {
		c.wait.active = false
		c.parkLink.remove()
		c.under.leave()
		c.under = nil
	}

	for _, f := range c.wait.members {
		if f != nil && !f.done {
			f.abandon(c)
		}
	}

	c.wait.members = nil
	if !c.started {
		return
	}
	m.active.Store(c)
	c.signal <- wakeExit
	timer := time.NewTimer(m.w.cfg.UnloadTimeout)
	defer timer.Stop()

	for {
		select {
		case gone := <-m.gone:
			if gone == c {
				return
			}
		case <-timer.C:
			m.w.cfg.Logger.Error("deferred function of workflow code does not end",
				"run_id", m.r.start.Run.String(), "workflow", m.r.start.Address.Type, "stack", m.w.stackOf(c))
			return
		}
	}
}
