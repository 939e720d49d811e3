package engine

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// loopers is the number of goroutines of a lane that run its loop and its errands to the store. An
// errand is a call to the store. A lane has one errand at a time, so one of the goroutines is
// always free for the loop.
const loopers = 2

// serve runs the loop or an errand, whichever needs a goroutine, until the loop has ended.
func (s *laneShell) serve(ctx context.Context) {
	for {
		select {
		case l := <-s.baton:
			l.run(ctx)
		case do := <-s.errands:
			do(ctx)
		case <-s.ended:
			// The lane may have asked for a commit just before its end.
			select {
			case do := <-s.errands:
				do(ctx)
			default:
			}
			return
		}
	}
}

// laneLoop is the loop of a lane. One goroutine at a time runs it. Its fields are what one round
// leaves for the next round.
type laneLoop struct {
	*laneShell
	timer        *time.Timer
	ops, results []op
	out          lane.Output
	full         bool // ops were left in the inbox
	passed       bool // another goroutine does the errand of the output
}

// run runs the loop until the loop ends, or until this goroutine leaves the loop for an errand.
func (l *laneLoop) run(ctx context.Context) {
	for {
		if !l.passed {
			l.round()
			if errand := l.errand(ctx); errand != nil && l.pass(ctx, errand) {
				return
			}
		}

		l.passed = false
		if !l.rest(ctx) {
			close(l.ended)
			return
		}
	}
}

// If the loop has to wake at least this many workers and callers, its own goroutine does the
// errand: another goroutine would start the errand too late.
const many = 8

// pass lets one goroutine do an errand while another one continues the loop. It returns true if
// this goroutine has done the errand, and another one has the loop.
//
// A commit to a database server is a short write and a long wait, and the server is idle until it
// gets the write. If the loop has many workers and callers to wake, this goroutine does the errand
// immediately. If it woke another goroutine for the errand, that goroutine would run after all
// these workers and callers, which is 0.1 ms later with 64 clients. If there are few to wake, the
// loop continues here, so that workers and callers do not wait for the write. The loop also
// continues here if the store is in this process, because such a store uses the processor during a
// commit.
func (l *laneLoop) pass(ctx context.Context, errand func(context.Context)) bool {
	out := &l.out
	if !l.remote || len(out.Calls)+len(out.TaskCalls)+len(out.Operate)+len(out.Answers) < many {
		l.errands <- errand
		return false
	}

	l.passed = true
	l.baton <- l
	errand(ctx)
	return true
}

// round takes the waiting inputs, applies them, and takes the output of the lane.
func (l *laneLoop) round() {
	// The loop always takes results, because they make room. New inputs wait in the inbox while the
	// lane is full, and their senders wait with them.
	l.full = l.lane.Full()
	l.ops, l.results = l.inbox.take(l.full, l.ops, l.results)
	now := l.eng.clock.now()
	for i := range l.results {
		l.results[i].do(l.lane, now)
	}

	applied := 0
	for i := range l.ops {
		if i > 0 && l.lane.Full() {
			l.inbox.giveBack(l.ops[i:]) // the lane may have no room for all of them
			l.full = true
			break
		}
		l.apply(now, &l.ops[i])
		applied += l.ops[i].bytes
	}

	// Until here, these bytes take room in the inbox.
	l.inbox.releaseBytes(applied)
	clear(l.results)
	clear(l.ops)

	// Flush applies waiting inputs and timers, and seals a batch if none is in flight. Everything
	// that the inputs have caused is in one output.
	l.lane.Flush(now)
	l.publishEra()
	l.out = l.lane.Take(l.out)
	l.inc.board.Propose()
}

// rest carries out the rest of an output, and waits for the next input. It returns false if the
// loop has ended.
func (l *laneLoop) rest(ctx context.Context) bool {
	if dead := l.carryOut(&l.out); dead != nil {
		l.inc.end(dead)
		l.abandon(dead)
		return false
	}

	// The loop committed a batch itself, so its result may have made the next batch ready. Continue
	// without waiting for an input.
	if l.landed && ctx.Err() == nil {
		l.landed = false
		return true
	}

	if l.full && !l.lane.Full() {
		l.inbox.ring() // the loop can take the ops that were left in the inbox now
	}
	if l.sleep(ctx, l.timer) {
		return true
	}

	// The incarnation has ended. The lane answers its callers and workers a last time.
	cause := context.Cause(ctx)
	l.lane.Die(cause)
	l.out = l.lane.Take(l.out)
	_ = l.carryOut(&l.out) // it returns cause, wrapped
	l.abandon(cause)
	return false
}

// If there is nothing else to do, the loop itself commits a batch of at most fewRows rows and
// fewBytes bytes. That saves a single caller two switches of goroutines. Inputs that arrive during
// the commit could not be committed earlier anyway. The commit of a batch with more bytes may take
// long, and the loop can do other work in that time.
const (
	fewRows  = 4
	fewBytes = 64 << 10
)

// errand returns a function with the call to the store that the lane asks for. The lane asks for
// one call at a time. errand returns nil if there is none, or if it has committed a small batch
// itself.
func (l *laneLoop) errand(ctx context.Context) func(context.Context) {
	s, out := l.laneShell, &l.out
	switch {
	case out.Commit != nil && l.isAlone():
		res, err := s.commit(ctx, out.Commit)
		if !store.Final(err) {
			s.lane.FinishCommit(s.eng.clock.now(), res, err)
			s.landed = true
		}
		return nil

	case out.Commit != nil:
		b := out.Commit
		return func(ctx context.Context) {
			if res, err := s.commit(ctx, b); !store.Final(err) {
				s.inbox.result(func(l *lane.Lane, now model.Time) { l.FinishCommit(now, res, err) })
			}
		}

	case out.Refence != nil:
		ref := *out.Refence
		return func(ctx context.Context) { s.refence(ctx, ref) }

	case len(out.Verify) > 0:
		// The lane reuses the memory of its output, and the errand reads the starts later.
		starts := append([]store.StartRow(nil), out.Verify...)
		return func(ctx context.Context) { s.verify(ctx, starts) }
	}
	return nil
}

// isAlone reports whether the output has only a small batch, and no input waits.
func (l *laneLoop) isAlone() bool {
	out, b := &l.out, l.out.Commit
	others := len(out.Calls) + len(out.TaskCalls) + len(out.Operate) + len(out.Interrupts) + len(out.Answers) + len(out.Loads) +
		len(out.Mail) + len(out.Hints) + len(out.Freed) + len(out.Large)
	return b.Rows() <= fewRows && b.Bytes <= fewBytes && b.Patience == 0 && others == 0 && l.inbox.empty()
}
