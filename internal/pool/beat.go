package pool

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// beatDue returns when the claim needs its next heartbeat; zero if it needs none.
func (t *Task) beatDue() time.Time {
	if t.claim.Spec.Silence <= 0 {
		return time.Time{}
	}
	return t.beaten.Add(t.claim.Spec.Silence / 3)
}

// progressDue returns when to send waiting progress: at most once per progressEvery.
func (p *Pool) progressDue() time.Time {
	now := time.Now()
	if next := p.beatenAt.Add(progressEvery); next.After(now) {
		return next
	}
	return now
}

// armLocked schedules the next beat no later than the given time.
func (p *Pool) armLocked(at time.Time) {
	if at.IsZero() || p.closed || p.beating != nil || !p.beatAt.IsZero() && !at.Before(p.beatAt) {
		return // the beat in flight schedules the next one when it returns
	}
	p.beatAt = at
	d := max(time.Until(at), 0)
	if p.beats == nil {
		p.beats = time.AfterFunc(d, p.beat)
	} else {
		p.beats.Reset(d)
	}
}

// beat sends one heartbeat for all claims that the pool holds. It stops the tasks whose claims the
// pool no longer has, according to the engine.
func (p *Pool) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beatAt = time.Time{}
	if p.closed || p.beating != nil || p.session == nil || !p.beatNeeded() {
		return // whatever changes one of these conditions schedules the next beat
	}
	// Close waits for all helpers, so register this beat as one.
	p.helpers.Add(1)
	defer p.helpers.Done()
	// One call carries all claims. A call per claim would cost a round trip each.
	beats := make([]api.Beat, 0, len(p.held))
	tasks := make([]*Task, 0, len(p.held))
	for ref, t := range p.held {
		beats, tasks = append(beats, api.Beat{Claim: ref, Progress: t.progress}), append(tasks, t)
	}
	ctx, cancel := context.WithTimeout(p.ctx, beatTimeout)
	sent := time.Now()
	replies, err := p.sendBeats(ctx, beats)
	cancel()
	if err == nil && len(replies) != len(beats) {
		err = fmt.Errorf("%d answers to %d heartbeats", len(replies), len(beats))
	}

	// After a failed call the pool may still have the claims. It continues to execute and sends the
	// heartbeat again soon.
	if err != nil {
		if p.ctx.Err() == nil {
			p.unheard.Fail(err, "tasks", len(beats))
		}
		p.armLocked(time.Now().Add(p.patience()))
		return
	}

	p.unheard.OK()
	type ended struct {
		t     *Task
		cause error
	}

	// Mark what was sent, and collect the tasks to stop. Their contexts end below, after the lock
	// is released, because ending a context may run code of users.
	var stopped []ended
	for i, t := range tasks {
		t.beaten = sent
		// A handler may have reported newer progress during the call. The newer progress stays for
		// the next beat.
		if t.progress == beats[i].Progress {
			t.progress = nil
		}
		// The claim may have ended during the call, and the engine may have sent it again.
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

// sendBeats sends beats. It releases the lock during the call. Only one call is in flight at a
// time, so an older progress cannot arrive after a newer one.
func (p *Pool) sendBeats(ctx context.Context, beats []api.Beat) ([]api.BeatReply, error) {
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

// sendLastProgress sends the last progress of an attempt that failed or was given back, before the
// report ends the claim. The next attempt starts from that progress. Progress that cannot be sent
// within beatTimeout is dropped.
func (p *Pool) sendLastProgress(t *Task) {
	ctx, cancel := context.WithTimeout(p.ctx, beatTimeout)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()

	// Wait until the progress is sealed and no other beat is in flight, then send it.
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
			_, err := p.sendBeats(ctx, []api.Beat{{Claim: t.claim.Ref, Progress: t.progress}})
			if err != nil && p.ctx.Err() == nil {
				p.log.Warn("the last progress of a task was lost; its next attempt starts from an earlier one", "activity", t.claim.Spec.Kind, "error", err)
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

// beatNeeded reports whether any claim needs a beat.
func (p *Pool) beatNeeded() bool {
	for _, t := range p.held {
		if t.claim.Spec.Silence > 0 || t.progress != nil {
			return true
		}
	}
	return false
}

// armAgain schedules the next beat that is due.
func (p *Pool) armAgain() {
	for _, t := range p.held {
		p.armLocked(t.beatDue())
		if t.progress != nil {
			p.armLocked(p.progressDue())
		}
	}
}

// patience returns the pause after a failed beat: a ninth of the shortest heartbeat time-out, and
// at most progressEvery. So a few beats can fail before the engine takes a task away.
func (p *Pool) patience() time.Duration {
	pause := progressEvery
	for _, t := range p.held {
		if s := t.claim.Spec.Silence; s > 0 {
			pause = min(pause, s/9)
		}
	}
	return pause
}
