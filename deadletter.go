package perdure

import (
	"context"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/userdb"
)

// DeadLetter is a message that the engine refused after its transaction or its entity operation had
// committed: a start, signal, settlement, cancel request or call. For example, a start names a key
// whose execution has another input, or a signal goes to an execution that is closed or does not
// exist. A call becomes a dead letter if the process that serves the entity lacks the operation or
// cannot read the state of the entity, or if the call has killed several processes. A stored
// message that cannot be read becomes a dead letter too. The engine does not try a dead letter
// again. A task that failed permanently is a DeadTask instead.
type DeadLetter struct {
	ID string
	// Kind is start, signal, settle, cancel or call, or unreadable if the stored message is
	// damaged.
	Kind   string
	Target Ref
	At     time.Time // when it was sent, or, in the engine's own database, when it was refused
	Reason string    // why the engine refused it
}

// DeadLetters returns the messages that the engine refused after their senders had stopped waiting.
// They come from the outboxes of this app and from the engine's own database. In an outbox they
// stay until an operator deletes their rows. The engine removes the ones in its own database after
// 30 days.
func (a *App) DeadLetters(ctx context.Context) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		for _, r := range a.relays {
			for after := ""; ; {
				page, err := r.db.DeadLetters(ctx, a.host.scope, after, deadLetterPage)
				if err != nil {
					yield(DeadLetter{}, public(err))
					return
				}

				for i := range page {
					l := &page[i]
					ref, err := ParseRef(l.Execution)
					if !yield(DeadLetter{ID: l.ID, Kind: l.Kind, Target: ref, At: userdb.Time(l.At), Reason: l.Error}, err) {
						return
					}
					after = l.ID
				}

				if len(page) < deadLetterPage {
					break
				}
			}
		}

		a.inboxDeadLetters(ctx, yield)
	}
}

// inboxDeadLetters yields the dead letters in the engine's own database.
func (a *App) inboxDeadLetters(ctx context.Context, yield func(DeadLetter, error) bool) {
	for after := (model.RunID{}); ; {
		page, err := a.cfg.Backend.DeadLetters(ctx, a.host.tenant, after, deadLetterPage)
		if err != nil {
			yield(DeadLetter{}, public(err))
			return
		}

		for i := range page {
			l := &page[i]
			sec, nsec := uuid.UUID(l.ID).Time().UnixTime()
			kind := l.Message.Kind.String()
			if l.Unreadable {
				kind = "unreadable"
			}
			if !yield(DeadLetter{
				ID: uuid.UUID(l.ID).String(), Kind: kind, Target: Ref{Workflow: l.Message.To.Type, Key: l.Message.To.Key},
				At: time.Unix(sec, nsec).UTC(), Reason: l.Reason,
			}, nil) {
				return
			}
			after = l.ID
		}

		if len(page) < deadLetterPage {
			return
		}
	}
}

const deadLetterPage = 100
