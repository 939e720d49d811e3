package lending

import (
	"time"

	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/model"
)

// Worker is a worker of another node, as the board and the lanes see it: a loan.Worker under the
// lock of its borrower.
type Worker struct {
	b *Borrower
	w *loan.Worker
}

// Expect tells that so many claims by a borrowed worker are on their way to the store.
func (w *Worker) Expect(count int) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Expect(count)
}

// Execute is for lanes.
func (w *Worker) Execute(claims []model.Claim) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Execute(time.Now(), claims)
}

// Stop is for lanes.
func (w *Worker) Stop(ref model.ClaimRef, why model.StopReason) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Stop(time.Now(), ref, why == model.StopCanceled)
}

// Settled is for lanes.
func (w *Worker) Settled(ref model.ClaimRef, err error) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Settled(time.Now(), ref, err)
}

// Unsettled is told that a report came to the wrong owner: its node tells the right one.
func (w *Worker) Unsettled(ref model.ClaimRef) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Unsettled(time.Now(), ref)
}
