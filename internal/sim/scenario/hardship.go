package scenario

// Hardship is a fault that lasts, or that comes from outside the cluster: repeating a call does
// not end it. The number of a seed decides which hardships it has. So consecutive seeds have all of
// them in equal shares, and every fourth seed has none.
type Hardship uint16

// The hardships.
const (
	HardSize   Hardship = 1 << iota // commits that are too large fail
	HardPoison                      // rows that the store refuses while anything else is open
	HardDeath                       // a live node is declared dead
	HardFlood                       // more input at once than a lane has room for
	HardClock                       // the store's clock jumps, and machines are suspended
	HardRows                        // rows that cannot be read, some of them only by an older build
	// users make mistakes with request ids, and nodes forget old ones
	HardIDs
	HardReport // one report of a task is as large as the budget of a lane
	HardAll    = HardSize | HardPoison | HardDeath | HardFlood | HardReport | HardClock | HardRows | HardIDs
)

// ready are the hardships that the engine can handle. No seed has a fault that the engine cannot
// handle yet.
const ready = HardAll

// hardships are the faults of the seeds, by the remainder of the seed. The modulus shares no factor
// with the moduli that decide about the workload.
var hardships = [11]Hardship{
	3: HardSize, 4: HardPoison | HardFlood | HardReport, 5: HardClock, 6: HardRows, 7: HardIDs, 8: HardDeath, 9: 0, 10: HardAll,
}

// notReady reports whether a fault belongs to a hardship that no seed has.
func notReady(k FaultKind) bool {
	of := map[FaultKind]Hardship{
		FaultLargeTimeout: HardSize, FaultLargeRefused: HardSize, FaultLastingPoison: HardPoison, FaultLie: HardDeath, FaultFlood: HardFlood,
		FaultJump: HardClock, FaultJumpBack: HardClock, FaultSuspend: HardClock,
		FaultMisuse: HardIDs, FaultUpgrade: HardRows, FaultNewEvent: HardRows, FaultNewMessage: HardRows, FaultDamaged: HardRows, FaultSkipped: HardRows,
	}
	return of[k] != 0 && of[k]&ready == 0
}

// Hard reports whether the simulation has a hardship.
func (s *Scenario) Hard(h Hardship) bool { return s.hardship&h != 0 }

// drawHardships decides which hardships the simulation has, and how hard they are.
func (s *Scenario) drawHardships(seed uint64) {
	if s.Opts.Calm || s.Opts.Plain {
		return
	}
	s.hardship = hardships[seed%uint64(len(hardships))] & ready

	if seed%uint64(len(hardships)) == 10 { // some of them together
		for h := Hardship(1); h <= HardAll; h <<= 1 {
			if s.Chance(0.4) {
				s.hardship &^= h
			}
		}
	}

	s.Plan.Forgets = s.Hard(HardIDs) && s.Chance(0.25)
	if s.Hard(HardRows) {
		s.drawRows()
	}
	if s.Hard(HardSize) {
		s.drawSize()
	}
	// rates and breakers depend on the time; this simulation does not check them during jumps
	if s.Gates {
		s.hardship &^= HardClock
	}
	if s.Hard(HardClock) {
		s.drawClock()
	}
	// a claim whose end cannot be stored keeps its permits, and other tasks wait for them
	if s.Gates {
		s.hardship &^= HardPoison
	}
	if s.Hard(HardPoison) {
		s.Plan.Lasting = 1 + s.Pick(2)
	}
	if s.Hard(HardFlood | HardReport) {
		s.drawFlood()
	}
	if s.Hard(HardDeath) {
		s.Plan.Lies = 1 + s.Pick(3)
	}
}
