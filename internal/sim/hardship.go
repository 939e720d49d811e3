package sim

// A hardship is a fault that lasts, or that comes from outside the cluster: repeating a call does
// not end it. The number of a seed decides which hardships it has. So consecutive seeds have all of
// them in equal shares, and every fourth seed has none.
type hardship uint16

const (
	hardSize hardship = 1 << iota // commits that are too large fail
	// rows that the store refuses while anything else is open
	hardPoison
	hardDeath // a live node is declared dead
	hardFlood // more input at once than a lane has room for
	hardClock // the store's clock jumps, and machines are suspended
	hardRows  // rows that cannot be read, some of them only by an older build
	// users make mistakes with request ids, and nodes forget old ones
	hardIDs
	hardReport // one report of a task is as large as the budget of a lane
	hardAll    = hardSize | hardPoison | hardDeath | hardFlood | hardReport | hardClock | hardRows | hardIDs
)

// ready are the hardships that the engine can handle. No seed has a fault that the engine cannot
// handle yet.
const ready = hardAll

// hardships are the faults of the seeds, by the remainder of the seed. The modulus shares no factor
// with the moduli that decide about the workload.
var hardships = [11]hardship{
	3: hardSize, 4: hardPoison | hardFlood | hardReport, 5: hardClock, 6: hardRows, 7: hardIDs, 8: hardDeath, 9: 0, 10: hardAll,
}

// notReady reports whether a fault belongs to a hardship that no seed has.
func notReady(k faultKind) bool {
	of := map[faultKind]hardship{
		faultLargeTimeout: hardSize, faultLargeRefused: hardSize, faultLastingPoison: hardPoison, faultLie: hardDeath, faultFlood: hardFlood,
		faultJump: hardClock, faultJumpBack: hardClock, faultSuspend: hardClock,
		faultMisuse: hardIDs, faultUpgrade: hardRows, faultNewEvent: hardRows, faultNewMessage: hardRows, faultDamaged: hardRows, faultSkipped: hardRows,
	}
	return of[k] != 0 && of[k]&ready == 0
}

// hard reports whether the simulation has a hardship.
func (s *Sim) hard(h hardship) bool { return s.hardship&h != 0 }

// drawHardships decides which hardships the simulation has, and how hard they are.
func (s *Sim) drawHardships(seed uint64) {
	if s.opts.Calm || s.opts.Plain {
		return
	}
	s.hardship = hardships[seed%uint64(len(hardships))] & ready

	if seed%uint64(len(hardships)) == 10 { // some of them together
		for h := hardship(1); h <= hardAll; h <<= 1 {
			if s.chance(0.4) {
				s.hardship &^= h
			}
		}
	}

	s.plan.forgets = s.hard(hardIDs) && s.chance(0.25)
	if s.hard(hardRows) {
		s.drawRows()
	}
	if s.hard(hardSize) {
		s.drawSize()
	}
	// rates and breakers depend on the time; this simulation does not check them during jumps
	if s.gates {
		s.hardship &^= hardClock
	}
	if s.hard(hardClock) {
		s.drawClock()
	}
	// a claim whose end cannot be stored keeps its permits, and other tasks wait for them
	if s.gates {
		s.hardship &^= hardPoison
	}
	if s.hard(hardPoison) {
		s.plan.lasting = 1 + s.pick(2)
	}
	if s.hard(hardFlood | hardReport) {
		s.drawFlood()
	}
	if s.hard(hardDeath) {
		s.plan.lies = 1 + s.pick(3)
	}
}

// scheduleHardships schedules the hardships.
func (s *Sim) scheduleHardships(at func(n int, do func())) {
	at(s.plan.lasting, s.sickenForGood)
	at(s.plan.jumps, s.jump)
	if s.hard(hardRows) {
		at(s.plan.newEvents, s.newKind)
		at(1, s.upgrade)
	}
	at(s.plan.suspends, func() {
		if p := s.procs[s.pick(3)]; p != nil {
			p.suspend(s.between(20, 4*s.plan.ttl.Milliseconds()) * millisecond)
		}
	})
	at(s.plan.floods, s.flood)
	at(s.plan.lies, s.lie)
}
