//go:build !amd64 && !arm64

package replay

import "runtime"

// settleOn does nothing: foreign finds the coroutine from the stack.
func (c *Coroutine) settleOn() {}

// maxDepth is how many frames of a stack foreign reads. If the stack is deeper, foreign cannot see
// its bottom.
const maxDepth = 128

// foreign reports whether the calling goroutine belongs to no coroutine. If so, user code has
// started the goroutine, or the goroutine runs the body of a step. foreign looks at the bottom of
// the stack, which takes a microsecond.
//
//go:noinline
func (c *Coroutine) foreign() bool {
	var pcs [maxDepth]uintptr
	n := runtime.Callers(2, pcs[:])
	if n < 2 || n == maxDepth { // the bottom is out of reach
		return false
	}
	switch runtime.FuncForPC(pcs[n-2]).Name() { // above runtime.goexit
	case "github.com/perdure/perdure/internal/replay.(*hosts).host", "github.com/perdure/perdure/internal/replay.(*Coroutine).replace":
		return false
	}
	return true
}
