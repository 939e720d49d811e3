//go:build long

package restapi_test

import (
	"testing"
	"time"
)

// There are a thousand listeners, and a thousand executions start each second. No listener loses a
// change.
func TestLongThousandListeners(t *testing.T) {
	const tenants, listeners, executions = 10, 100, 1_000
	a := newAudience(t, tenants)
	a.pause = 10 * time.Millisecond
	wantAll(t, a.attend(listeners, executions), executions)
	a.report(listeners, executions)
}

// One tenant has a thousand listeners, and a thousand executions start in it each second. Changes
// that the listeners cannot receive in time wait in the buffer.
func TestLongThousandListenersOfOneTenant(t *testing.T) {
	const listeners, executions = 1_000, 3_000
	a := newAudience(t, 1)
	a.pause = time.Millisecond
	wantAll(t, a.attend(listeners, executions), executions)
	a.report(listeners, executions)
}

// report logs how fast the executions were started and how fast the listeners received them.
func (a *audience) report(listeners, executions int) {
	took, all := time.Since(a.begun).Seconds(), float64(len(a.tenants)*executions)
	a.t.Logf("%d listeners of each of %d tenants, %.1f s; %.0f executions started per second, %.0f changes delivered per second",
		listeners, len(a.tenants), took, all/took, all*float64(listeners)/took)
}
