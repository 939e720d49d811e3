package lane

// runBytes is roughly what a run costs its worker apart from its history.
const runBytes = 4 << 10

// room is the memory for histories that workers hold. A run that finds none waits in line. One run
// always finds room, however large it is.
type room struct {
	used  int      // bytes of runs that workers hold or that are being read for them
	line  []*entry // that wait for room, in order
	tried bool     // no run can be let go of to make room before something happens to one of them
}
