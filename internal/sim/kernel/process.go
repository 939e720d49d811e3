package kernel

// Process is something that events happen to: while the process is paused its events wait, and
// after its death the kernel drops its events.
type Process struct {
	k        *Kernel
	Label    string
	Dead     bool
	Cut      bool // calls of the process that are in flight do not arrive
	Paused   bool
	deferred []event // its events during a pause
	Threads  int     // threads that have not ended
	line     []turn  // callers that wait for their turn
}

// NewProcess returns a live process.
func (s *Kernel) NewProcess(label string) *Process { return &Process{k: s, Label: label} }

// Name returns the name of the process in the trace.
func (p *Process) Name() string { return p.Label }

// Pause makes the events of the process wait until Resume.
func (p *Process) Pause() { p.Paused = true }

// Resume lets the process continue: it now handles every event that arrived during the pause.
func (p *Process) Resume() {
	if p.Dead || !p.Paused {
		return
	}
	p.Paused = false
	if p.k.Tracing {
		p.k.Logf("%s goes on", p.Name())
	}
	for _, e := range p.deferred {
		p.k.At(p.k.Now, p, e.do)
	}
	p.deferred = nil
}
