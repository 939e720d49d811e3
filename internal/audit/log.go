package audit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	// mostRows is how many entries one transaction writes.
	mostRows = 200
	// mostWaiting is how many entries may wait to be written. They include entries of callers that
	// have given up.
	mostWaiting = 10_000
	// writeTime bounds one write.
	writeTime = 10 * time.Second
)

// Config configures a log.
type Config struct {
	Store store.Audit
	// Log receives messages about entries that cannot be written; nil for none.
	Log *slog.Logger
	// Caller is recorded for calls whose context names no caller; nil if the log does not record
	// such calls.
	Caller *authn.Call
	// Now is the clock; nil for the clock of the machine.
	Now func() time.Time
}

// Log records administrative actions. It is safe for concurrent use.
type Log struct {
	config Config

	mu      sync.Mutex
	waiting []*write
	writing bool           // a goroutine writes the waiting entries
	flushes sync.WaitGroup // waits for that goroutine
	refused map[attempt]*refusals
	queued  int  // refusals that wait to be written
	closed  bool // no further refusal is recorded
}

// write is an entry that waits to be written.
type write struct {
	row  store.AuditRow
	done chan error // buffered
}

// New returns a log.
func New(cfg Config) *Log {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Log{config: cfg, refused: map[attempt]*refusals{}}
}

// Close waits until all refusals so far are written. The log does not record later refusals.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.flushes.Wait()
}

// caller returns the caller of an action, or nil if the log does not record the call.
func (l *Log) caller(ctx context.Context) *authn.Call {
	if who := authn.CallOf(ctx); who != nil {
		return who
	}
	return l.config.Caller
}

// records reports whether a call is recorded. If it is not, the caller need not read the old value.
func (l *Log) records(ctx context.Context) bool { return l.caller(ctx) != nil }

// sign adds the caller and the time to an entry.
func (l *Log) sign(e *api.AuditEntry, who *authn.Call) {
	e.ID, e.At = model.RunID(uuid.Must(uuid.NewV7())), model.TimeOf(l.config.Now())
	e.Caller, e.CallerTenant, e.Admin, e.Door, e.From = who.Name, who.Tenant, who.Admin, who.Door, who.From
}

// record writes an entry, takes the action, and adds the outcome to the entry. The action returns
// the new value.
func (l *Log) record(ctx context.Context, e api.AuditEntry, act func(ctx context.Context) (after any, err error)) error {
	who := l.caller(ctx)
	if who == nil {
		_, err := act(ctx)
		return err
	}

	l.sign(&e, who)
	e.Action, e.Outcome = string(actionOf(e.Call)), api.AuditUnknown
	if err := l.put(ctx, &e); err != nil {
		return fault.New(fault.Unavailable, "nothing was done, because the audit log cannot record %s: %w", e.Call, err)
	}

	after, err := act(ctx)
	e.After, e.Outcome = value(after), api.AuditDone
	if err != nil {
		e.Outcome, e.Error = api.AuditFailed, errorText(err)
		if fault.Is(err, fault.Denied) {
			e.Outcome = api.AuditDenied
		}
	}
	// Record the outcome even if the caller is gone.
	if failed := l.put(context.WithoutCancel(ctx), &e); failed != nil {
		l.config.Log.LogAttrs(ctx, slog.LevelError, "the outcome of an administrative action is not recorded", slog.String("call", e.Call),
			slog.String("resource", e.Resource), slog.String("caller", e.Caller), slog.String("outcome", e.Outcome), slog.String("error", failed.Error()))
	}
	return err
}

// Note records an action of the server itself, such as reading its policies again.
func (l *Log) Note(ctx context.Context, e api.AuditEntry) error {
	l.sign(&e, &authn.Call{Identity: authn.Identity{Name: e.Caller}, Door: e.Door})
	return l.put(ctx, &e)
}

// put writes an entry and waits until it is durable. Entries of several callers share transactions.
func (l *Log) put(ctx context.Context, e *api.AuditEntry) error {
	row, err := rowOf(e)
	if err != nil {
		return err
	}
	w := &write{row, make(chan error, 1)}
	if !l.enqueue(w) {
		return fault.New(fault.Exhausted, "%d entries of the audit log wait to be written", mostWaiting)
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enqueue passes an entry to the goroutine that writes, and starts that goroutine if there is none.
// It returns false if too many entries wait.
func (l *Log) enqueue(w *write) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= mostWaiting {
		return false
	}
	l.waiting = append(l.waiting, w)
	if !l.writing {
		l.writing = true
		l.flushes.Go(l.flush)
	}
	return true
}

// flush writes the waiting entries until there are none.
func (l *Log) flush() {
	for {
		l.mu.Lock()
		batch := l.waiting[:min(len(l.waiting), mostRows)]
		l.waiting = l.waiting[len(batch):]
		if len(batch) == 0 {
			l.waiting, l.writing = nil, false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()

		rows := make([]store.AuditRow, len(batch))
		for i, w := range batch {
			rows[i] = w.row
		}
		err := l.write(rows)
		for _, w := range batch {
			w.done <- err
		}
	}
}

// write writes entries. It repeats a write once if the outcome is unknown, or if the store says
// that the write may be repeated. Writing an entry twice does no harm.
func (l *Log) write(rows []store.AuditRow) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	err := l.config.Store.PutAudit(ctx, rows)
	if c := store.ClassOf(err); err != nil && (c == store.Unknown || c == store.Retryable) && ctx.Err() == nil {
		err = l.config.Store.PutAudit(ctx, rows)
	}
	return err
}
