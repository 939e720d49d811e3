package scenario

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
)

// Asks of a section: the lock, the time-out of the lock, two calls with a pause in between, and its
// end.
const (
	AskLock = iota
	askLate
	AskFirst
	AskSecond
	AskUnlock
	askNap
)

// drawSection makes a block that locks some accounts and calls one or two of them. After that, the
// block releases the accounts, or the accounts become free when the run ends.
func (s *Scenario) drawSection(b *Block, root bool, within int64) {
	for range 1 + s.Pick(4) {
		b.Locks = append(b.Locks, AccountAddress(s.Pick(s.Plan.Accounts)))
	}
	b.wait = within
	b.nap = kernel.OneOf(s, 0, s.Between(0, 5*kernel.Millisecond), s.Between(0, 150*kernel.Millisecond))
	b.together, b.keeps, b.tidy = s.Chance(0.3), s.Chance(0.15), s.Chance(0.5)
	for i := range b.Deeds {
		b.Targets[i] = kernel.OneOf(s, b.Locks...)
		b.Names[i], b.Deeds[i] = s.NewDeed(root)
	}
	b.Deeds[1].Amount = -b.Deeds[0].Amount // the two calls are a transfer, if both are additions
	if b.Targets[0] == b.Targets[1] {
		b.together = false // one at a time
	}
}

// inSection continues a section as far as possible. It reports whether the program continues with
// the next block.
func (m *Machine) inSection(b *Block, as *[MaxAsks]Ask) bool {
	if !as[AskLock].Done {
		return b.wait > 0 && as[askLate].Done
	}
	if as[askLate].Asked && !as[askLate].Done {
		as[askLate].Gone = true // the section has the locks
	}
	as[AskFirst].Asked = true
	if b.together {
		as[AskSecond].Asked = true
	}
	if !as[AskFirst].Done {
		return false
	}

	if b.nap > 0 && !as[askNap].Asked {
		as[askNap].Asked, as[askNap].Timer = true, m.Last+model.Time(b.nap)
	}
	if as[askNap].Asked && !as[askNap].Done {
		return false
	}
	as[AskSecond].Asked = true
	if !as[AskSecond].Done {
		return false
	}

	// the following blocks may need the same accounts
	as[AskUnlock].Asked = !b.keeps || m.PC+1 < len(m.Program.Blocks)
	return true
}

// leaveSection abandons the open requests of a section when the program leaves the section before
// its end.
func (m *Machine) leaveSection(b *Block, as *[MaxAsks]Ask) {
	if as[AskLock].Done && b.tidy {
		as[AskUnlock].Asked = true
	}
	for i := range as {
		if a := &as[i]; a.Asked && !a.Done && i != AskUnlock {
			a.Gone = true
		}
	}
}
