package replay

// Local is a future that the code of the run resolves itself, so that one coroutine can wait for
// what another one does. A run that waits for nothing else goes on when an update comes.
func (x Ctx) Local() *Future {
	x.must("Local")
	return &Future{m: x.co.m, kind: futureLocal}
}

// Resolve resolves a Local future; those who wait for it go on when this coroutine next waits.
// Resolving it twice is harmless.
func (x Ctx) Resolve(f *Future) {
	x.must("Resolve")
	if f.kind == futureLocal && !f.done {
		x.co.m.resolve(f, x.co.m.position())
	}
}
