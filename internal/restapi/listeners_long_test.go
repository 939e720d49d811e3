//go:build long

package restapi_test

import (
	"testing"
	"time"
)

// A thousand listeners, and a thousand executions that start each second: no listener loses one.
func TestLongThousandListeners(t *testing.T) {
	const tenants, listeners, executions = 10, 100, 1_000
	a := newAudience(t, tenants)
	a.pause = 10 * time.Millisecond
	begun := time.Now()
	wantAll(t, a.attend(listeners, executions), executions)
	took := time.Since(begun).Seconds()
	t.Logf("%d listeners of %d tenants; %.0f executions started per second, %.0f changes delivered per second",
		tenants*listeners, tenants, tenants*executions/took, tenants*listeners*executions/took)
}
