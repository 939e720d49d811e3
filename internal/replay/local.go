package replay

// Local returns a future that the code of the run resolves itself, so that one coroutine can wait
// for another. If a run waits only for such futures, it continues when an update arrives.
func (x Ctx) Local() *Future {
	x.must("Local")
	return &Future{m: x.co.m, kind: futureLocal}
}

// Resolve resolves a Local future. Coroutines that wait for it continue when this coroutine next
// waits. Resolving it twice is harmless.
func (x Ctx) Resolve(f *Future) {
	x.must("Resolve")
	if f.kind == futureLocal && !f.done {
		x.co.m.resolve(f, x.co.m.position())
	}
}
