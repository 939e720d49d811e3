package txtest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// impatient is a machine that cancels a transfer and records its events.
type impatient struct {
	perdure.Events
	self  *perdure.Workflow[transfer, string]
	in    transfer
	heard []string
}

func (m *impatient) OnStart() perdure.Actions {
	return perdure.Actions{settle.Schedule("transfer", m.in), perdure.StartTimer("soon", 20*time.Millisecond)}
}

func (m *impatient) OnTimerFired(e perdure.TimerFired) perdure.Actions {
	m.heard = append(m.heard, e.ID)
	if e.ID == "soon" {
		return perdure.Actions{perdure.CancelAction("transfer"), perdure.StartTimer("later", 200*time.Millisecond)}
	}
	return perdure.Actions{m.self.Complete(strings.Join(m.heard, " "))}
}

func (m *impatient) OnActivityCompleted(e perdure.ActivityCompleted) perdure.Actions {
	m.heard = append(m.heard, e.ID+" completed")
	return nil
}

func (m *impatient) OnActivityFailed(e perdure.ActivityFailed) perdure.Actions {
	m.heard = append(m.heard, e.ID+" failed")
	return nil
}

// A machine that cancels a transactional activity does not get the result of the activity, and the
// transaction is rolled back.
func TestMachineCancelsATransfer(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		var machine *perdure.Workflow[transfer, string]
		machine = perdure.NewMachine[transfer, string]("impatient", func(in transfer) *impatient { return &impatient{self: machine, in: in} })
		app := open(t, "memory:", machine, b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
			if _, err := move(ctx, s, in); err != nil {
				return "", err
			}
			<-ctx.Done()
			return "", ctx.Err()
		}))
		if got, err := machine.Run(caller(t, app), one, perdure.RawKey("m")); err != nil || got != "soon later" {
			t.Errorf("it heard %q, %v", got, err)
		}
		b.check(nil)
	})
}
