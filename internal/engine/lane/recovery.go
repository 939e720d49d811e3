package lane

import "github.com/perdure/perdure/internal/model"

// stage is how far the lane is in handling a failed commit.
type stage uint8

const (
	stageNone      stage = iota
	stageResend          // send the same batch again at the given time
	stageRefence         // move the fence at the given time
	stageRefencing       // waiting for the fence
	// Waiting to learn which addresses of starts in a landed batch already had a run.
	stageVerifying
)

// recovery is the state of the lane while it handles a failed commit.
type recovery struct {
	stage    stage
	at       model.Time // when to continue; zero for as soon as possible
	attempts int
	// commits of the batch in flight with an unknown outcome that did not land
	lost     int
	broken   int     // commits of the batch in flight that the store aborted
	patience int     // see store.Batch
	chunks   []chunk // see careful.go
}

const (
	lostTries    = 2 // lost commits of a batch before it is split
	brokenTries  = 6 // broken commits of a batch before it is split
	mostPatience = 6
)

// reset notes that the batch in flight is finished. The patience stays as it is, because the
// remaining inputs probably need as much time.
func (r *recovery) reset() {
	r.stage, r.at, r.attempts, r.lost, r.broken = stageNone, 0, 0, 0, 0
}

// addPatience gives the next commit more time.
func (r *recovery) addPatience() { r.patience = min(r.patience+1, mostPatience) }

// busy reports whether the lane is handling a failed commit, so that it must not seal another
// batch.
func (r *recovery) busy() bool { return r.stage != stageNone }

// chunk is a sequence of kept inputs of a refused batch that the lane commits together.
type chunk []input

// careful reports whether the lane applies inputs of a refused batch again. Until that is done, the
// lane applies no other input.
func (r *recovery) careful() bool { return len(r.chunks) > 0 }

// halfOf returns how many of the first inputs have about half of the bytes: at least one, and not
// all.
func halfOf(inputs []input) int {
	all := 0
	for _, in := range inputs {
		all += in.base().held
	}
	n, some := 0, 0
	for n < len(inputs)-1 && (n == 0 || some+inputs[n].base().held <= all/2) {
		some += inputs[n].base().held
		n++
	}
	return n
}
