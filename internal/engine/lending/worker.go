package lending

import (
	"time"

	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/model"
)

// LockedWorker is a worker of another node, as the board and the lanes see it: a
// loan.BorrowedWorker under the lock of its borrower.
type LockedWorker struct {
	b *Borrower
	w *loan.BorrowedWorker
}

// Expect adds to the number of claims for the worker that the lane is committing.
func (w *LockedWorker) Expect(count int) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Expect(count)
}

// Execute implements model.TaskWorker.
func (w *LockedWorker) Execute(claims []model.Claim) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Execute(time.Now(), claims)
}

// Stop implements model.TaskWorker.
func (w *LockedWorker) Stop(ref model.ClaimRef, why model.StopReason) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Stop(time.Now(), ref, why == model.StopCanceled)
}

// Settle implements model.TaskWorker.
func (w *LockedWorker) Settle(ref model.ClaimRef, err error) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Settle(time.Now(), ref, err)
}

// Redirect drops a report that this owner has not recorded, because it does not own the run or has
// no room now. The node of the worker sends the report again, to the node that owns the run by
// then.
func (w *LockedWorker) Redirect(ref model.ClaimRef) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.w.Redirect(time.Now(), ref)
}
