package scenario

import (
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
)

// Short returns a short form of a run id for the trace, which is the counter in the id.
func Short(id model.RunID) string {
	n := uint64(0)
	for _, b := range id[8:] {
		n = n<<8 | uint64(b)
	}
	return fmt.Sprintf("r%d", n)
}

// DescribeTurn lists the commands of a turn for the trace.
func DescribeTurn(t *model.Turn) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seen %d", t.Seen)
	for i := range t.Commands {
		c := &t.Commands[i]
		name := c.Event.Kind.String()
		switch c.Kind {
		case model.CommandStartTimer:
			name = fmt.Sprintf("start_timer due %.6f", float64(c.Event.Due-kernel.Epoch)/1e6)
			if c.Event.Due == 0 {
				name = fmt.Sprintf("start_timer in %s", c.Delay)
			}
		case model.CommandStopTimer:
			name = "stop_timer"
		case model.CommandWithdraw:
			name = "withdraw"
		case model.CommandStartChild, model.CommandWatch:
			name = "child " + c.Event.Target.Key
		case model.CommandSend:
			name = "send " + c.Event.Target.Key
		case model.CommandRetry:
			name = "retry"
		case model.CommandAnswer:
			name = fmt.Sprintf("answer %d", c.Event.Ref)
		case model.CommandLock:
			name = fmt.Sprintf("lock %d", len(c.Event.Locks))
		case model.CommandUnlock:
			name = "unlock"
		case model.CommandRecord, model.CommandSchedule:
		}

		fmt.Fprintf(&b, " %s(%s)", name, c.Event.ID)
		if i+1 == t.Ahead {
			b.WriteString(" ahead:")
		}
	}

	if t.Close != nil {
		fmt.Fprintf(&b, " close %s", t.Close.Status)
	}
	return b.String()
}
