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

// Expect says that the given number of claims by the worker are being committed.
func (w *Worker) Expect(count int) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Expect(count)
}

// Execute implements engine.TaskWorker.
func (w *Worker) Execute(claims []model.Claim) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Execute(time.Now(), claims)
}

// Stop implements engine.TaskWorker.
func (w *Worker) Stop(ref model.ClaimRef, canceled bool) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Stop(time.Now(), ref, canceled)
}

// Settled implements engine.TaskWorker.
func (w *Worker) Settled(ref model.ClaimRef, err error) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Settled(time.Now(), ref, err)
}

// Unsettled says that a report reached the wrong owner: its node sends it to the right one.
func (w *Worker) Unsettled(ref model.ClaimRef) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Unsettled(time.Now(), ref)
}
