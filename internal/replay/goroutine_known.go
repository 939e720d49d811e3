//go:build amd64 || arm64

package replay

// goroutine returns a number that identifies the calling goroutine among the live ones. It costs no
// more than a function call. The number is the address of the runtime's data about the goroutine,
// which never moves.
func goroutine() uintptr

// settleOn notes that the coroutine runs on the calling goroutine.
func (c *Coroutine) settleOn() { c.home.Store(goroutine()) }

// foreign reports whether the coroutine runs on another goroutine than the calling one. If so, user
// code has started the calling goroutine, or that goroutine runs the body of a step.
func (c *Coroutine) foreign() bool { return c.home.Load() != goroutine() }
