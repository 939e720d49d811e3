package pool

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Close takes nothing new, lets what runs come to an end until ctx ends, and gives back what does
// not: its context ends, and a handler that goes on all the same is left alone. Afterwards the
// engine knows of no claim of ours. The error names what was left alone.
func (p *Pool) Close(ctx context.Context) error {
	idle := p.drain()
	ended := true
	select {
	case <-idle:
	case <-ctx.Done():
		p.interrupt()
		select {
		case <-idle:
		case <-time.After(grace):
			ended = false
		}
	}

	var left []string
	if !ended {
		left = p.abandon()
	}
	p.mu.Lock()
	session := p.session
	p.mu.Unlock()
	var err error

	if session != nil {
		leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		err = session.Leave(leave)
		cancel()
	}

	p.end()
	p.helpers.Wait()
	if len(left) > 0 {
		return fault.New(fault.Timeout, "%d tasks ignore that their context has ended; they were given back, and their code goes on: %s", len(left), strings.Join(left, ", "))
	}

	return err
}

// drain takes nothing new, and gives back what waits for a slot. The channel is closed when nothing
// is busy.
func (p *Pool) drain() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle // of everybody who closes

	var back []model.TaskReport
	for _, t := range p.line {
		t.state = gone
		t.cancel(ErrShutdown)
		p.drop(t)
		back = append(back, model.TaskReport{Ref: t.claim.Ref, Returned: true})
	}

	p.line = nil
	p.handAll(back)
	p.measure()
	p.rest()
	return idle
}

// interrupt ends the contexts of everything that runs.
func (p *Pool) interrupt() {
	p.mu.Lock()
	busy := make([]*Task, 0, len(p.busy))
	for t := range p.busy {
		busy = append(busy, t)
	}
	p.mu.Unlock()
	for _, t := range busy {
		t.cancel(ErrShutdown)
	}
}

// abandon gives back what goes on although its context has ended, and counts it no more. It returns
// the names of the activities.
func (p *Pool) abandon() (left []string) {
	p.mu.Lock()
	var back []model.TaskReport
	for t := range p.busy {
		if t.state == running {
			back = append(back, model.TaskReport{Ref: t.claim.Ref, Returned: true})
		}
		if t.state != reporting {
			left = append(left, t.claim.Spec.Kind)
			p.log.Warn("a task ignores that its context has ended; it is left alone", "activity", t.claim.Spec.Kind, "attempt", t.claim.Attempt)
		}
		t.state = gone
		p.drop(t)
	}

	clear(p.busy)
	p.lost = 0
	p.rest()
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.ctx, leaveTimeout)
	defer cancel()
	for i := range back {
		p.hand(ctx, back[i])
	}
	slices.Sort(left)

	return left
}

// end stops everything that goes on by itself.
func (p *Pool) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.unwatch != nil {
		p.unwatch()
	}
	if p.looks != nil {
		p.looks.Stop()
	}
	if p.beats != nil {
		p.beats.Stop()
	}
	p.stop()
}
