package sim

func (s *Sim) dump() {
	for _, p := range s.procs {
		if p != nil && p.inc != nil {
			for _, sh := range p.inc.shells {
				s.logf("DUMP %s/%d ops=%d results=%d pending=%v %s", p.inc.name(), sh.index, len(sh.ops), len(sh.results), sh.pending, sh.lane.Dump())
			}
		}
	}
}
