package pool

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Close takes no new claims and lets running tasks finish until ctx ends. After that it ends the
// contexts of the tasks that still run and gives their claims back. It abandons handlers that
// ignore the end of their context, and returns an error that names them. Close also returns an
// error if the pool could not leave its session in time. Once the pool has left its session, the
// engine has no claim of this pool left.
func (p *Pool) Close(ctx context.Context) error {
	// Wait until all handlers have ended, or until ctx ends. Then end the contexts of the handlers
	// and give them a moment to return.
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

	// Handlers that ignore their context still run. Give their claims back anyway. Another worker
	// continues the tasks, and the engine ignores the results of these handlers.
	var (
		left     []string
		returned int
	)
	if !ended {
		left, returned = p.abandon()
	}
	p.mu.Lock()
	session := p.session
	p.mu.Unlock()
	var err error

	// ctx may have ended already, but the session must still settle the last reports.
	if session != nil {
		leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		err = session.Leave(leave)
		cancel()
	}

	p.end()
	p.helpers.Wait()
	if len(left) > 0 {
		return fault.New(fault.Timeout, "%d tasks ignore the end of their context, and their code still runs: %s; the pool gave %d of their claims back", len(left), strings.Join(left, ", "), returned)
	}

	return err
}

// drain stops taking claims and gives back the claims that wait for a slot. It returns a channel
// that is closed when no task is busy.
func (p *Pool) drain() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle // shared by all callers of Close

	// Claims in line have not started, so giving them back uses up no attempt.
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

// interrupt ends the contexts of all running tasks.
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

// abandon gives back the claims of tasks that ignore the end of their context, and no longer counts
// these tasks as busy. It returns the names of their activities, and how many claims it has given
// back. A lost claim cannot be given back, although its task may still run.
func (p *Pool) abandon() (left []string, returned int) {
	p.mu.Lock()
	var back []model.TaskReport
	for t := range p.busy {
		if t.state == running {
			back = append(back, model.TaskReport{Ref: t.claim.Ref, Returned: true})
		}
		if t.state != reporting {
			left = append(left, t.claim.Spec.Kind)
			p.log.Warn("a task ignores the end of its context; the pool abandons it", "activity", t.claim.Spec.Kind, "attempt", t.claim.Attempt)
		}
		t.state = gone
		p.drop(t)
	}

	clear(p.busy)
	p.lost = 0
	p.rest()
	p.mu.Unlock()
	// Report without the lock, because the engine may block.
	ctx, cancel := context.WithTimeout(p.ctx, leaveTimeout)
	defer cancel()
	for i := range back {
		if p.hand(ctx, back[i]) {
			returned++
		}
	}
	slices.Sort(left)

	return left, returned
}

// end stops the timers and helper goroutines of the pool.
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
