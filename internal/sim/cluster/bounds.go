package cluster

import (
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// In some simulations users send more than a lane has room for: many large signals to one address
// at the same time. Tasks report large outputs, also to runs whose rows the store refuses. The
// simulator checks that the memory of a lane stays within its budget plus a small slack, and that
// the lane continues all other work.

// slack is how much memory a lane may use beyond its budget. A lane always accepts results of reads
// and commits. While it has room, it also accepts one input of any size.
const slack = 6 << 10

// checkBounds checks that a lane stays within its memory limits. A lane does not change between
// two rounds, so a check at the end of each round sees every state.
func (sh *shell) checkBounds() {
	s, most := sh.s, sh.s.Plan.Lane.MaxBytes
	sh.checkUsage()
	if mail, most := sh.Lane.MailHeld(), s.Plan.Lane.MaxMail; most > 0 && mail > most+slack+max(s.Plan.Heavy, s.Heaviest) {
		s.Fail("L7: lane %d of %s holds %d bytes of messages, at most %d and one more", sh.index, sh.inc.name(), mail, most)
	}
	if !s.Has(scenario.Flood | scenario.LargeReports) {
		return
	}

	held := sh.Lane.PendingBytes()
	if held < most {
		sh.mailed = 0
	}

	if more := slack + max(s.Plan.Heavy, s.Heaviest) + sh.mailed + s.Plan.Lane.MaxKeptBytes; held > most+more {
		s.DumpIf()
		s.Fail("L7: lane %d of %s holds %d bytes, at most %d and %d of mail", sh.index, sh.inc.name(), held, most+more, sh.mailed)
	}
}

// strangers is how many addresses without a history a lane may have in memory. A read of an unknown
// address adds such an address.
const strangers = 32

// largestHistory is the largest size of one history, in bytes.
const largestHistory = 128 << 10

// checkUsage checks what a lane has in memory besides inputs: addresses and histories. One history
// may be in memory even if it is larger than the budget.
func (sh *shell) checkUsage() {
	s, u := sh.s, sh.Lane.Usage()
	// a run that is no longer in memory may still be in the line
	if most := len(s.Ledger.Addresses) + strangers; u.Entries > most || u.Line > most {
		s.Fail("L7: lane %d of %s has %d addresses in memory, and %d wait for room, at most %d", sh.index, sh.inc.name(), u.Entries, u.Line, most)
	}
	if most := s.Plan.Lane.MaxHeld; most > 0 && u.Histories > most+largestHistory {
		s.Fail("L7: lane %d of %s holds %d bytes of histories, at most %d and one history", sh.index, sh.inc.name(), u.Histories, most)
	}
	if u.Histories < 0 || u.Calls < 0 {
		s.Fail("L7: lane %d of %s counts %d bytes of histories and %d of calls", sh.index, sh.inc.name(), u.Histories, u.Calls)
	}
	if s.Has(scenario.Flood|scenario.LargeReports) && u.Calls > s.Plan.Lane.MaxBytes+slack+max(s.Plan.Heavy, s.Heaviest)+sh.mailed {
		s.Fail("L7: lane %d of %s holds %d bytes of calls", sh.index, sh.inc.name(), u.Calls)
	}
}

// mails records mail that a lane gets from the store or from another lane. Mail arrives in pages,
// even if the lane has no room.
func (sh *shell) mails(messages []store.MessageRow, inbox []store.InboxRow) {
	if !sh.s.Has(scenario.Flood | scenario.LargeReports) {
		return
	}
	for i := range messages {
		sh.mailed += inputSize + messages[i].Message.Size()
	}
	for i := range inbox {
		sh.mailed += inputSize + inbox[i].Message.Size()
	}
}

// inputSize is how many bytes a lane adds to the payload of an input when it counts its memory.
const inputSize = 256
