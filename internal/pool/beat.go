package pool

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// beatDue is when the engine must hear of the claim next; zero when it need not.
func (t *Task) beatDue() time.Time {
	if t.claim.Spec.Silence <= 0 {
		return time.Time{}
	}
	return t.beaten.Add(t.claim.Spec.Silence / 3)
}

// progressDue is when progress is told.
func (p *Pool) progressDue() time.Time {
	now := time.Now()
	if next := p.beatenAt.Add(progressEvery); next.After(now) {
		return next
	}
	return now
}

// armLocked has the next beat sent no later than at a time.
func (p *Pool) armLocked(at time.Time) {
	if at.IsZero() || p.closed || p.beating != nil || !p.beatAt.IsZero() && !at.Before(p.beatAt) {
		return // while one is on its way, it looks for what is due afterwards
	}
	p.beatAt = at
	d := max(time.Until(at), 0)
	if p.beats == nil {
		p.beats = time.AfterFunc(d, p.beat)
	} else {
		p.beats.Reset(d)
	}
}

// beat tells the engine that everything we have is being executed, and hears what is not ours any
// more.
func (p *Pool) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beatAt = time.Time{}
	if p.closed || p.beating != nil || p.session == nil || !p.beatNeeded() {
		return // whoever changes that looks for what is due
	}
	p.helpers.Add(1)
	defer p.helpers.Done()
	beats := make([]api.Beat, 0, len(p.held))
	tasks := make([]*Task, 0, len(p.held))
	for ref, t := range p.held {
		beats, tasks = append(beats, api.Beat{Claim: ref, Progress: t.progress}), append(tasks, t)
	}
	ctx, cancel := context.WithTimeout(p.ctx, beatTimeout)
	sent := time.Now()
	replies, err := p.tell(ctx, beats)
	cancel()

	if err != nil || len(replies) != len(beats) {
		if p.ctx.Err() == nil {
			p.unheard.Failed(err, "tasks", len(beats))
		}
		p.armLocked(time.Now().Add(p.patience()))
		return
	}

	p.unheard.OK()
	type ended struct {
		t     *Task
		cause error
	}

	var stopped []ended
	for i, t := range tasks {
		t.beaten = sent
		if t.progress == beats[i].Progress {
			t.progress = nil
		}
		if p.held[t.claim.Ref] != t {
			continue
		}

		var cause error
		switch r := replies[i]; {
		case !r.Held:
			cause = p.stopLocked(t, model.StopLost)
		case r.Canceled:
			cause = p.stopLocked(t, model.StopCanceled)
		}

		if cause != nil {
			stopped = append(stopped, ended{t, cause})
		}
	}

	p.armAgain()
	p.measure()
	p.mu.Unlock()
	for _, e := range stopped {
		e.t.cancel(e.cause)
	}
	p.mu.Lock()
}

// tell makes a call that beats. It gives the lock away meanwhile; nobody else makes one, so that no
// older progress comes behind a newer one.
func (p *Pool) tell(ctx context.Context, beats []api.Beat) ([]api.BeatReply, error) {
	over := make(chan struct{})
	defer close(over)
	session, sent := p.session, time.Now()
	p.beating = over
	p.mu.Unlock()
	replies, err := session.Beat(ctx, beats)
	p.mu.Lock()
	p.beating, p.beatenAt = nil, sent
	return replies, err
}

// tellLast tells how far an attempt came that did not succeed, before its report does away with the
// claim: the next one begins there. What cannot be told in time is left out.
func (p *Pool) tellLast(t *Task) {
	ctx, cancel := context.WithTimeout(p.ctx, beatTimeout)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()

	for {
		var wait <-chan struct{}
		switch {
		case t.sealing != nil:
			wait = t.sealing
		case t.progress == nil || p.session == nil || t.state != reporting:
			return
		case p.beating != nil:
			wait = p.beating
		default:
			_, err := p.tell(ctx, []api.Beat{{Claim: t.claim.Ref, Progress: t.progress}})
			if err != nil && p.ctx.Err() == nil {
				p.log.Warn("the last progress of a task is not heard; the next attempt begins before it", "activity", t.claim.Spec.Kind, "error", err)
			}
			t.progress = nil
			p.armAgain()
			return
		}

		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
		}

		p.mu.Lock()
		if ctx.Err() != nil {
			return
		}
	}
}

// beatNeeded reports whether anything that we have needs a beat.
func (p *Pool) beatNeeded() bool {
	for _, t := range p.held {
		if t.claim.Spec.Silence > 0 || t.progress != nil {
			return true
		}
	}
	return false
}

// armAgain looks for the next beat that is due.
func (p *Pool) armAgain() {
	for _, t := range p.held {
		p.armLocked(t.beatDue())
		if t.progress != nil {
			p.armLocked(p.progressDue())
		}
	}
}

// patience is how long to wait after a beat that failed: a ninth of the shortest time-out, so that
// it can fail a few times.
func (p *Pool) patience() time.Duration {
	pause := progressEvery
	for _, t := range p.held {
		if s := t.claim.Spec.Silence; s > 0 {
			pause = min(pause, s/9)
		}
	}
	return pause
}
