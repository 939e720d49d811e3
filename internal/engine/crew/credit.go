package crew

import (
	"sync"
	"time"
)

// Credit has the slots of a worker of another node that the owner may use. The host grants slots
// only when the owner needs some, because the host itself and other owners use the same slots.
// Credit implements lane.Capacity.
type Credit struct {
	limit int
	tell  func(kind parcelKind, n int)

	mu      sync.Mutex
	granted int // slots that the host has given
	used    int
	asked   int // slots that the owner has asked for and not received
	lanes   []bool
	wake    func(lane int) // tells a lane that a slot may be free; does not block
	idle    *time.Timer
}

// Bounds of a credit.
const (
	mostAsked = 64                     // slots that an owner asks for in one request
	idleFor   = 100 * time.Millisecond // after which unused slots go back to the host
)

// newCredit returns the slots of a worker. It returns nil if the worker takes any number of runs or
// calls.
func (c *contract) newCredit(role uint64, limit int) *Credit {
	if limit <= 0 {
		return nil
	}
	return &Credit{limit: limit, tell: func(kind parcelKind, n int) { c.post(parcel{Kind: kind, Role: role, N: n}) }}
}

// Serve sets the number of lanes of the owner, and the function wake. Credit calls wake to tell a
// lane that a slot may be free.
func (c *Credit) Serve(lanes int, wake func(lane int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lanes, c.wake = make([]bool, lanes), wake
}

// Take takes a free slot. If no slot is free, it returns false, and Credit wakes the lane as soon
// as a slot is free.
func (c *Credit) Take(lane int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used < c.granted {
		c.used++
		return true
	}
	c.lanes[lane] = true
	if n := min(mostAsked, c.limit-c.granted); c.asked == 0 && n > 0 {
		c.asked = n
		c.tell(need, n)
	}
	return false
}

// Keep takes a slot for something that the worker already has, even if no slot is free.
func (c *Credit) Keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used++
}

// Free gives a slot back.
func (c *Credit) Free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used--
	c.offer()
}

// Limit returns how many slots the worker has.
func (c *Credit) Limit() int { return c.limit }

// grant adds slots that the host has given.
func (c *Credit) grant(n int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(max(0, n), c.asked) // a host gives at most as many slots as the owner has asked for
	c.granted += n
	c.asked -= n
	c.offer()
}

// offer wakes the lanes that wait for a slot, and gives unused slots back to the host after a
// while. The caller holds the lock.
func (c *Credit) offer() {
	if c.used >= c.granted {
		return
	}
	for i, waits := range c.lanes {
		if waits {
			c.lanes[i] = false
			c.wake(i)
		}
	}
	if c.idle == nil {
		c.idle = time.AfterFunc(idleFor, c.giveBack)
	}
}

// giveBack returns unused slots to the host.
func (c *Credit) giveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = nil
	if n := c.granted - c.used; n > 0 {
		c.granted -= n
		c.tell(returned, n)
	}
}
