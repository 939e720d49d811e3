package audit

import (
	"context"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/fault"
)

// Bounds of the record of refused attempts. A caller whose attempts are refused again and again
// must not fill the store, and must not displace the attempts of other callers.
const (
	// refusalEvery is the minimum time between two entries for equal attempts of one caller.
	refusalEvery = time.Minute
	// mostAttempts is how many different attempts are recorded in that time.
	mostAttempts = 1000
	// mostQueued is how many entries of refused attempts may wait to be written.
	mostQueued = 200
)

// attempt has the properties that equal attempts have in common.
type attempt struct {
	tenant, name, door string
	action             authz.Action
}

// refusals counts equal attempts.
type refusals struct {
	recorded time.Time // when the last entry was made
	since    int64     // attempts without an entry since then
}

// Authorizer returns an authorizer that records administrative actions that it refuses.
func (l *Log) Authorizer(inner authz.Authorizer, door string) authz.Authorizer {
	return &watched{inner, l, door}
}

// watched is the authorizer of a door. It makes the log record what the inner authorizer refuses.
type watched struct {
	inner authz.Authorizer
	log   *Log
	door  string
}

// Authorize decides as the inner authorizer does. It does not wait for the record of a refusal.
func (w *watched) Authorize(who *authn.Identity, action authz.Action) error {
	err := w.inner.Authorize(who, action)
	if err != nil && administrative(action) {
		w.log.refuse(&authn.Call{Identity: *who, Door: w.door}, action, err)
	}
	return err
}

// Unwrap returns the inner authorizer, which records nothing.
func (w *watched) Unwrap() authz.Authorizer { return w.inner }

// refuse records a refused attempt in the background, if the bounds allow it.
func (l *Log) refuse(who *authn.Call, action authz.Action, err error) {
	unrecorded, ok := l.admit(attempt{who.Tenant, who.Name, who.Door, action})
	if !ok {
		return
	}
	e := api.AuditEntry{Tenant: who.Tenant, Action: string(action), Outcome: api.AuditDenied, Error: errorText(err), Unrecorded: unrecorded}
	l.sign(&e, who)
	row, failed := rowOf(&e)
	if failed != nil {
		l.config.Log.Error("a refused administrative action is not recorded", "error", failed)
		return
	}

	w := &write{row, make(chan error, 1)}
	if !l.enqueue(w) {
		w.done <- fault.New(fault.Exhausted, "%d entries of the audit log wait to be written", mostWaiting)
	}
	l.flushes.Go(func() {
		failed := <-w.done
		l.mu.Lock()
		l.queued--
		l.mu.Unlock()
		if failed != nil {
			l.config.Log.LogAttrs(context.Background(), slog.LevelError, "a refused administrative action is not recorded", slog.String("action", e.Action),
				slog.String("caller", e.Caller), slog.String("tenant", e.Tenant), slog.String("error", failed.Error()))
		}
	})
}

// admit reports whether an attempt is recorded, and how many equal attempts before it have no
// entry.
func (l *Log) admit(a attempt) (unrecorded int64, ok bool) {
	now := l.config.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, false
	}
	r := l.refused[a]
	if r == nil {
		if len(l.refused) >= mostAttempts {
			l.forget(now)
		}
		if len(l.refused) >= mostAttempts {
			return 0, false
		}
		r = &refusals{}
		l.refused[a] = r
	}

	if now.Sub(r.recorded) < refusalEvery || l.queued >= mostQueued {
		r.since++
		return 0, false
	}
	unrecorded = r.since
	r.recorded, r.since = now, 0
	l.queued++
	return unrecorded, true
}

// forget removes attempts whose last entry is so old that the next attempt is recorded anyway.
func (l *Log) forget(now time.Time) {
	for a, r := range l.refused {
		if now.Sub(r.recorded) >= refusalEvery {
			delete(l.refused, a)
		}
	}
}
