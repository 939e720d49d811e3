package perduretest

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"
)

// realPatience is how much real time a run may take before watch prints what the run does.
const realPatience = time.Minute

// watch prints what a test is doing, if the test takes long. Virtual time passes only while
// everything waits. So if code spins, or waits for something outside the bubble, virtual time
// stands still. In that case Config.Patience never ends the test, and only the text that watch
// prints says why.
func watch(name string, after time.Duration, out io.Writer) *time.Timer {
	return time.AfterFunc(after, func() {
		buf := make([]byte, 4<<20)
		busy := busyGoroutines(string(buf[:runtime.Stack(buf, true)]))
		// If the write to the output fails, nothing can be done.
		_, _ = fmt.Fprintf(out, "perduretest: %s has taken %s of real time. Virtual time stands still while code runs, waits for a mutex, or for something "+
			"outside of the test:\n\n%s\n", name, after, busy)
	})
}

// busyGoroutines returns the goroutines that prevent the time of a bubble from passing.
func busyGoroutines(dump string) string {
	var busy []string
	for stack := range strings.SplitSeq(dump, "\n\n") {
		state, _, _ := strings.Cut(stack, "\n")
		if strings.Contains(state, "synctest bubble") && !strings.Contains(state, "(durable)") {
			busy = append(busy, stack)
		}
	}
	if len(busy) == 0 {
		return "nothing at this moment"
	}
	return strings.Join(busy, "\n\n")
}
