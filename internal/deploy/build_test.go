package deploy_test

import (
	"context"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/deploy"
	"github.com/perdure/perdure/internal/fault"
)

// If a person interrupts the wait for the greeting of a program, the error names the interrupt
// instead of blaming the program.
func TestInterruptedWaitForTheGreeting(t *testing.T) {
	t.Parallel()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("there is no program that sleeps")
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := deploy.Start(ctx, []string{sleep, "60"}, io.Discard); !fault.Is(err, fault.Canceled) {
		t.Errorf("%v, kind %s", err, fault.KindOf(err))
	}
}
