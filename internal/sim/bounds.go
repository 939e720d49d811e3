package sim

import (
	"fmt"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// In some simulations users send more than a lane has room for: many large signals to one address
// at once. Tasks report large outputs, also to runs whose rows are refused. What must hold: the
// memory of a lane stays within its budget plus a small slack, and the lane continues all other
// work.

// slack is what a lane may use beyond its budget. Results of reads and commits always get in, and
// so does one input of any size (heaviest) while there is room.
const slack = 6 << 10

// drawFlood decides how much input arrives at once.
func (s *Sim) drawFlood() {
	s.plan.lane.MaxBytes = oneOf(s, 2<<10, 4<<10, 8<<10)
	if s.hard(hardFlood) {
		s.plan.floods = 1 + s.pick(2)
	}
	if s.hard(hardReport) {
		s.plan.heavy = s.plan.lane.MaxBytes/2 + s.pick(s.plan.lane.MaxBytes)
	}
}

// checkBounds checks that a lane stays within its memory limits. A lane does not change between
// two rounds, so a check at the end of each round sees every state.
func (sh *shell) checkBounds() {
	s, most := sh.s, sh.s.plan.lane.MaxBytes
	sh.checkUsage()
	if mail, most := sh.lane.MailHeld(), s.plan.lane.MaxMail; most > 0 && mail > most+slack+max(s.plan.heavy, s.heaviest) {
		s.fail("L7: lane %d of %s holds %d bytes of messages, at most %d and one more", sh.index, sh.inc.name(), mail, most)
	}
	if !s.hard(hardFlood | hardReport) {
		return
	}

	held := sh.lane.Held()
	if held < most {
		sh.mailed = 0
	}

	if more := slack + max(s.plan.heavy, s.heaviest) + sh.mailed; held > most+more {
		s.dumpIf()
		s.fail("L7: lane %d of %s holds %d bytes, at most %d and %d of mail", sh.index, sh.inc.name(), held, most+more, sh.mailed)
	}
}

// strangers is how many addresses without a history a lane may have in memory. Reads of unknown
// addresses create them.
const strangers = 32

// largestHistory is the largest size of one history, in bytes.
const largestHistory = 128 << 10

// checkUsage checks what a lane has in memory besides inputs: addresses and histories. One history
// may be in memory whatever its size.
func (sh *shell) checkUsage() {
	s, u := sh.s, sh.lane.Usage()
	// a run that has left memory may still be in the line
	if most := len(s.ledger.addresses) + strangers; u.Entries > most || u.Line > most {
		s.fail("L7: lane %d of %s has %d addresses in memory, and %d wait for room, at most %d", sh.index, sh.inc.name(), u.Entries, u.Line, most)
	}
	if most := s.plan.lane.MaxHeld; most > 0 && u.Histories > most+largestHistory {
		s.fail("L7: lane %d of %s holds %d bytes of histories, at most %d and one history", sh.index, sh.inc.name(), u.Histories, most)
	}
	if u.Histories < 0 || u.Calls < 0 {
		s.fail("L7: lane %d of %s counts %d bytes of histories and %d of calls", sh.index, sh.inc.name(), u.Histories, u.Calls)
	}
	if s.hard(hardFlood|hardReport) && u.Calls > s.plan.lane.MaxBytes+slack+max(s.plan.heavy, s.heaviest)+sh.mailed {
		s.fail("L7: lane %d of %s holds %d bytes of calls", sh.index, sh.inc.name(), u.Calls)
	}
}

// mails records mail that a lane gets from the store or from another lane. It arrives in pages,
// even if the lane has no room.
func (sh *shell) mails(messages []store.MessageRow, inbox []store.InboxRow) {
	if !sh.s.hard(hardFlood | hardReport) {
		return
	}
	for i := range messages {
		sh.mailed += inputSize + messages[i].Message.Size()
	}
	for i := range inbox {
		sh.mailed += inputSize + inbox[i].Message.Size()
	}
}

// inputSize is what a lane counts for an input in addition to its payload.
const inputSize = 256

// flood lets a user send many large signals to one address from one process, without waiting for
// the answers.
func (s *Sim) flood() {
	p := s.procs[s.pick(3)]
	if p == nil || s.healed {
		return
	}
	u, to := s.helper, s.address()
	s.hurt(faultFlood)
	for range 20 + s.pick(30) {
		m := u.signalTo(to, signalNames[0])
		m.Input = heavy(m.Input, 400+s.pick(400))
		o := u.op(m)
		o.message.RequestID, o.pinned = "", p
		s.after(s.between(0, 2*millisecond), nil, func() { o.perform(func() {}) })
	}
}

// heavyEncoding marks payloads whose size is larger than their data.
const heavyEncoding = "heavy"

// heavy makes a payload n bytes larger.
func heavy(p model.Payload, n int) model.Payload {
	return model.Payload{Encoding: heavyEncoding, Data: append(append([]byte(nil), p.Data...), make([]byte, n)...)}
}

// output returns the output of an attempt. It names the attempt, and is large in simulations with
// large reports.
func (s *Sim) output(c *model.Claim) model.Payload {
	out := model.Payload{Data: fmt.Appendf(nil, "%s %s %d", c.Ref.Run, c.Ref.ID, c.Ref.Claim)}
	if s.plan.heavy > 0 {
		out = heavy(out, s.plan.heavy)
	}
	return out
}
