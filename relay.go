package perdure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/userdb"
)

// relay delivers the messages of one outbox.
type relay struct {
	db      *userdb.Database
	every   time.Duration
	mailer  api.Mailer
	host    *host
	hinted  chan struct{} // capacity 1
	trouble *episode.Source
}

// Bounds of a relay.
const (
	relayAtOnce = 16               // targets that the relay delivers to at the same time
	relayWithin = 20 * time.Second // for the delivery of one page
	// relayNotes is the time for reading a page, and for recording the verdicts on its messages.
	relayNotes = 10 * time.Second
	// relayStale is how long after reading a message the relay may still deliver it. After that,
	// the relay reads the message again first, because another relay may have delivered the
	// message, and the engine may have forgotten that delivery.
	relayStale = time.Minute
	relayPause = 30 * time.Second // the longest pause while the database cannot be reached
)

// eager are the pauses, in milliseconds, between reads after a transaction of this process has
// written a message. The pauses are short because the transaction will probably commit soon.
var eager = []time.Duration{2, 5, 10, 25, 50, 100, 250, 500}

// hint makes the relay read its table soon.
func (r *relay) hint() {
	select {
	case r.hinted <- struct{}{}:
	default:
	}
}

func (r *relay) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	looks := len(eager) // reads of the table since the last hint
	pause := r.every
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.hinted:
			looks = 0
		case <-timer.C:
		}

		n, err := r.round(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause = min(2*max(pause, r.every), max(relayPause, r.every))
			r.trouble.Fail(err, "again_in", pause)
		case n > 0:
			pause = 0
		case looks < len(eager):
			pause = eager[looks] * time.Millisecond
			looks++
		default:
			pause = r.every
		}
		if err == nil {
			r.trouble.OK()
		}

		timer.Reset(pause)
	}
}

// round delivers one page and returns how many messages now have a verdict: delivered, refused or
// deferred.
func (r *relay) round(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, relayWithin+relayNotes)
	defer cancel()
	return r.db.Relay(ctx, &userdb.Round{Cluster: r.host.scope, Reach: r.mailer.Reach, Deliver: r.deliver, Within: relayWithin})
}

// deliver sends messages. It sends messages to the same target one after the other.
func (r *relay) deliver(ctx context.Context, messages []userdb.OutboxMessage) (verdicts []userdb.Verdict) {
	// Round removes the monotonic part of the time, because the monotonic clock stands still while
	// the machine is suspended.
	read := time.Now().Round(0)
	byTarget := map[string][]userdb.OutboxMessage{}
	for _, l := range messages {
		byTarget[l.Execution] = append(byTarget[l.Execution], l)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup

	slots := make(chan struct{}, relayAtOnce)
	for _, line := range byTarget {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			told := r.deliverLine(ctx, line, read)
			mu.Lock()
			defer mu.Unlock()
			verdicts = append(verdicts, told...)
		})
	}

	wg.Wait()
	return verdicts
}

// deliverLine sends the messages of one target in order. If one message has to wait, all later
// messages wait too.
func (r *relay) deliverLine(ctx context.Context, line []userdb.OutboxMessage, read time.Time) (verdicts []userdb.Verdict) {
	waits := false
	for i := range line {
		if waits || ctx.Err() != nil || time.Now().Round(0).Sub(read) > relayStale {
			verdicts = append(verdicts, userdb.Verdict{ID: line[i].ID, Untried: true})
			continue
		}
		v, ok := r.deliverOne(ctx, &line[i])
		if ok {
			verdicts = append(verdicts, v)
		}
		waits = !ok || v.Later
	}
	return verdicts
}

// deliverOne sends a message. It returns false if there is no verdict, because the engine cannot be
// reached or ctx has ended.
func (r *relay) deliverOne(ctx context.Context, l *userdb.OutboxMessage) (userdb.Verdict, bool) {
	v := userdb.Verdict{ID: l.ID}
	if remembers := r.mailer.RequestRetention(); l.InDoubt(remembers) {
		v.Refused = "it may have been delivered: the outcome of an attempt at " + userdb.Time(l.Tried).Format(time.RFC3339) +
			" is not known, and the engine, which remembers a message for " + remembers.String() + ", may have forgotten it; sending it again could make it take effect twice"
		r.host.logger.Error("message of a transaction may have been delivered and is kept as a dead letter", "id", l.ID, "kind", l.Kind, "execution", l.Execution)
		return v, true
	}

	m, err := l.Message()
	switch {
	case err != nil:
		err = fault.New(fault.Invalid, "it cannot be read: %w", err)
	case m.To.Tenant != r.host.tenant:
		err = fault.New(fault.Denied, "it is for tenant %s, but this app belongs to tenant %s", m.To.Tenant, r.host.tenant)
	default:
		err = r.mailer.Deliver(ctx, &m)
	}

	switch kind := fault.KindOf(err); {
	case err == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		// The outcome is unknown. Leave the message out of the next pages, because the message
		// would slow these pages down too.
		v.Later = true
	case ctx.Err() != nil || kind == fault.Unavailable || kind == fault.Timeout || kind == fault.Canceled:
		return v, false
	case kind == fault.NotFound || kind == fault.Conflict || kind == fault.AlreadyExists || kind == fault.Invalid || kind == fault.Denied:
		v.Refused = err.Error()
		r.host.logger.Error("message of a transaction was refused and is kept as a dead letter", "id", l.ID, "kind", l.Kind, "execution", l.Execution)
	default:
		v.Later = true
		// The engine has not accepted the message, see Engine.Send.
		v.Untried = kind == fault.Exhausted || kind == fault.Blocked
	}
	return v, true
}
