package partitioned

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// The pause between two attempts to read from a member that is away.
const (
	firstPause   = 2 * time.Second
	longestPause = 30 * time.Second
)

// absence says that a member cannot be reached. The mutex of the part protects it.
type absence struct {
	why   error // why the last attempt has failed; nil while the member answers
	since time.Time
	next  time.Time // when the next read may try
	pause time.Duration
	// While a probe is under way, probe is a channel that closes at its end. Otherwise it is nil.
	probe chan struct{}
}

// ifThere makes a call that reads from a part. While a member is away, it fails at once, with an
// error that names the member. After a pause, which grows, one call tries again. While a probe is
// under way, ifThere first waits for its end, for up to longestWait.
//
// A read that fails does not prove that the member is away: it may be a query that takes too long.
// So a probe, which is a small read, decides. If a call of any kind succeeds, such as the next
// renewal of a lease, the member is there. If the member has answered since a read began, a failed
// probe for that read no longer counts.
func (s *Store) ifThere(ctx context.Context, p *part, call func() error) error {
	if p.index == 0 {
		return call()
	}
	begun, err := p.admit(ctx)
	if err != nil {
		return err
	}
	err = call()
	s.judge(ctx, p, begun, err)
	return p.explain(err)
}

// read is ifThere for calls that return rows.
func read[T any](ctx context.Context, s *Store, p *part, call func() (T, error)) (rows T, err error) {
	err = s.ifThere(ctx, p, func() (err error) {
		rows, err = call()
		return err
	})
	return rows, err
}

// admit returns an error if the member is away and it is too early for the next attempt. If it is
// not too early, the caller makes that attempt, and admit refuses other callers for a pause. While
// a probe is under way, admit waits for its result. admit returns how often the part has answered
// so far, for judge.
func (p *part) admit(ctx context.Context) (begun int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.away.probe != nil {
		probe := p.away.probe
		p.mu.Unlock()
		select {
		case <-probe:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if err := context.Cause(ctx); err != nil {
			return 0, store.Errorf(store.Away, "read", "%s: a read has failed, and a probe has not ended: %w", p.name, err)
		}
	}
	if err := p.absent(); err != nil {
		return 0, err
	}
	if p.away.why != nil {
		p.away.next = time.Now().Add(p.away.pause)
	}
	return p.answers, nil
}

// absent returns an error if the part is away and must not be read yet. The caller holds the mutex.
func (p *part) absent() error {
	a := &p.away
	left := time.Until(a.next)
	if a.why == nil || left <= 0 {
		return nil
	}
	return store.Errorf(store.Away, "read", "%s: away for %s, the next attempt is in %s: %w",
		p.name, time.Since(a.since).Round(time.Millisecond), left.Round(time.Millisecond), a.why)
}

// absentMembers returns an error that names all members whose reads would fail at once.
func (s *Store) absentMembers() error {
	var errs []error
	for _, p := range s.parts[1:] {
		p.mu.Lock()
		errs = append(errs, p.absent())
		p.mu.Unlock()
	}
	return errors.Join(errs...)
}

// leave notes that a member cannot be reached, unless it has answered since a call began. The pause
// until the next attempt grows with each failure.
func (p *part) leave(begun int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers > begun {
		return
	}
	if e, ok := errors.AsType[*store.Error](err); ok {
		err = e.Err
	}
	now, a := time.Now(), &p.away
	if a.why == nil {
		a.since = now
	}
	a.pause = min(max(2*a.pause, firstPause), longestPause)
	a.why, a.next = err, now.Add(a.pause)
}

// comeBack notes that the part has answered.
func (p *part) comeBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers++
	p.failed, p.away = time.Time{}, absence{probe: p.away.probe}
}

// beginCall returns how often the part has answered so far, for judge.
func (p *part) beginCall() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answers
}

// judge notes how a call of a member has ended. If it failed, a probe finds out whether the member
// can be reached.
func (s *Store) judge(ctx context.Context, p *part, begun int64, err error) {
	if err == nil || !isTrouble(err) {
		p.comeBack()
		return
	}

	probe := make(chan struct{})
	p.mu.Lock()
	// If a read failed because its caller gave up, that says nothing about the part. But if the
	// part was away, this read was the only attempt, and other reads do not try again soon. So a
	// probe must find out whether the part is back.
	skip := p.away.probe != nil || p.away.why == nil && errors.Is(ctx.Err(), context.Canceled)
	if !skip {
		p.away.probe = probe
	}
	p.mu.Unlock()
	if skip {
		return
	}

	end := func() {
		p.mu.Lock()
		p.away.probe = nil
		p.mu.Unlock()
		close(probe)
	}
	if !s.start(longestWait, func(ctx context.Context) {
		defer end()
		if _, err := p.Members(ctx); isTrouble(err) {
			p.leave(begun, err)
		} else {
			p.comeBack()
		}
	}) {
		end() // the store is closed
	}
}
