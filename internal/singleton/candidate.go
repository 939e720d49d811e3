package singleton

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/replay"
)

// Parts of a lease. Each constant is a divisor: 5 means a fifth of the lease.
const (
	// marginShare is the part of the lease that remains for the code to return after its context
	// has ended.
	marginShare = 5
	// renewShare is the part of the lease between two renewals.
	renewShare = 4
	// lookShare is the part of the lease between two looks at a register that another candidate
	// holds.
	lookShare = 10
)

// Bounds of pauses.
const (
	maxLook     = time.Second // the longest pause between two looks, or between two clock checks
	minLook     = 10 * time.Millisecond
	firstPause  = time.Second // after the first failure of the code
	maxPause    = time.Minute
	retryPause  = 100 * time.Millisecond // after a renewal that got no answer
	releaseTime = 5 * time.Second        // the time limit of the last command of a tenure
)

// Register keeps the state of a singleton.
type Register interface {
	// Load reads the register. It may return an outdated state, but never a state that is older
	// than what an earlier call returned.
	Load(ctx context.Context) (State, error)
	// Apply applies a command. After an error the command may take effect later, or never.
	Apply(ctx context.Context, c *Command) (Answer, error)
}

// Config configures a candidate.
type Config struct {
	Name     string
	Register Register
	// ID distinguishes this candidate from all others.
	ID string
	// Process describes this process. Gone gets such a description of another process, and reports
	// whether that process is provably gone. Without Process and Gone, the candidate takes over
	// only when a lease has run out.
	Process string
	Gone    func(process string) bool
	// Lease is how long the candidate keeps the register without a renewal.
	Lease time.Duration
	// Pause is the time between a return of the code without an error and its next start.
	Pause time.Duration
	// Drain is how long the code may take to return after the app has begun to close.
	Drain time.Duration
	// Body is the code.
	Body func(ctx context.Context, t *Tenure) error
	Log  *slog.Logger
}

// Candidate runs the code of a singleton whenever it holds the register.
type Candidate struct {
	cfg      Config
	watch    watch
	failures int // how often the code has failed in a row
	trouble  *episode.Source
}

// New returns a candidate.
func New(cfg Config) *Candidate {
	trouble := episode.New(cfg.Log, "the register of a singleton cannot be reached", "the register of a singleton can be reached again")
	return &Candidate{cfg: cfg, trouble: trouble.Source("singleton", cfg.Name)}
}

// Run competes for the register and runs the code, until ctx ends. It returns when the code has
// returned, or when the code has used up its time to drain.
func (c *Candidate) Run(ctx context.Context) {
	defer c.trouble.Leave()
	for ctx.Err() == nil {
		pause := max(min(c.cfg.Lease/lookShare, maxLook), minLook)
		t, err := c.claim(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			c.trouble.Fail(err)
		case t != nil:
			pause = c.hold(ctx, t)
		}
		if err == nil {
			c.trouble.OK()
		}

		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// claim looks at the register and takes it if it is free. It returns nil if the register is not
// free.
func (c *Candidate) claim(ctx context.Context) (*Tenure, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Lease)
	defer cancel()
	s, err := c.cfg.Register.Load(ctx)
	if err != nil || !c.watch.isFree(&s, time.Now(), c.cfg.ID, c.cfg.Gone) {
		return nil, err
	}

	sent := time.Now()
	a, err := c.cfg.Register.Apply(ctx, &Command{
		Verb: VerbClaim, Candidate: c.cfg.ID, Epoch: s.Epoch, Beat: s.Beat, Process: c.cfg.Process, Lease: c.cfg.Lease, Since: sent.UTC().Round(time.Millisecond),
	})
	if err != nil || !a.Granted {
		return nil, err
	}
	return &Tenure{candidate: c, epoch: a.State.Epoch, renewed: sent, position: a.State.Position.Payload}, nil
}

// hold runs the code while the lease lasts. It returns how long to wait before the next claim.
func (c *Candidate) hold(ctx context.Context, t *Tenure) (pause time.Duration) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	t.ctx = &tenureContext{inner, cancel, t}
	defer cancel(nil)
	c.cfg.Log.Info("this process runs a singleton", "singleton", c.cfg.Name, "epoch", t.epoch)

	// Renew the lease until the code has returned, even after its context has ended: no other
	// process should start while the code still acts.
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRenewing()
	var renewer sync.WaitGroup
	renewer.Go(func() { t.renew(renewing) })

	done := make(chan error, 1)
	go c.run(t, done)
	returned, err := c.await(ctx, t, done)
	lost := t.isLost()
	stopRenewing()
	renewer.Wait()

	if !returned {
		// The code may still act, so its lease must run out before another process starts.
		c.cfg.Log.Warn("a singleton does not return although the app closes", "singleton", c.cfg.Name, "epoch", t.epoch)
		return 0
	}
	c.release(ctx, t)

	switch {
	case lost:
		c.cfg.Log.Warn("this process has stopped a singleton because its lease was lost", "singleton", c.cfg.Name, "epoch", t.epoch)
		return 0
	case err == nil || ctx.Err() != nil:
		return 0
	}
	c.cfg.Log.Error("a singleton has failed", "singleton", c.cfg.Name, "epoch", t.epoch, "error", err)
	pause = min(firstPause<<min(c.failures, 10), maxPause)
	c.failures++
	return pause
}

// run runs the code again and again, until the code fails or the tenure is over. It sends one
// result to done, even if the code ends the goroutine with runtime.Goexit.
func (c *Candidate) run(t *Tenure, done chan<- error) {
	err := error(replay.ExitFailure("singleton " + c.cfg.Name))
	defer func() {
		if v := recover(); v != nil {
			err = replay.PanicFailure(v)
		}
		done <- err
	}()

	for {
		if e := c.cfg.Body(t.ctx, t); e != nil || t.ctx.Err() != nil {
			err = e
			return
		}
		c.failures = 0
		select {
		case <-t.ctx.Done():
		case <-time.After(c.cfg.Pause):
		}
		if t.ctx.Err() != nil {
			err = nil
			return
		}
	}
}

// await waits until the code returns. While it waits, it ends the context of the code if the lease
// may end or if the app closes. returned is false if the code has not returned in its time to
// drain.
func (c *Candidate) await(ctx context.Context, t *Tenure, done <-chan error) (returned bool, err error) {
	check := time.NewTicker(max(min(c.cfg.Lease/lookShare, maxLook), minLook))
	defer check.Stop()
	stopping := ctx.Done()

	var drained <-chan time.Time
	for {
		expires := time.NewTimer(max(t.left(), minLook))
		select {
		case err := <-done:
			expires.Stop()
			return true, err
		case <-stopping:
			t.ctx.end(ErrStopping)
			stopping, drained = nil, time.After(c.cfg.Drain)
		case <-drained:
			expires.Stop()
			return false, nil
		case <-expires.C:
		case <-check.C:
		}

		expires.Stop()
		_ = t.ctx.Err() // ends the context if its time is over
	}
}

// renew renews the lease until ctx ends. If a renewal gets no answer, it sends the renewal again
// almost immediately. The context of the code ends by the clock, regardless of what happens here.
func (t *Tenure) renew(ctx context.Context) {
	pause := t.candidate.cfg.Lease / renewShare
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}

		try, cancel := context.WithTimeout(ctx, t.candidate.cfg.Lease)
		err := t.apply(try, &Command{Verb: VerbRenew})
		cancel()
		switch {
		case errors.Is(err, ErrLost):
			return
		case err != nil && ctx.Err() == nil:
			t.candidate.trouble.Fail(err)
			pause = min(retryPause, t.candidate.cfg.Lease/renewShare)
		case err == nil:
			t.candidate.trouble.OK()
			pause = t.candidate.cfg.Lease / renewShare
		}
	}
}

// release gives the register back after the code has returned, so that another process can start
// immediately. If that fails, the other process waits until the lease has run out.
func (c *Candidate) release(ctx context.Context, t *Tenure) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	if err := t.apply(ctx, &Command{Verb: VerbRelease}); err != nil && !errors.Is(err, ErrLost) {
		c.cfg.Log.Warn("a singleton was not released; another process waits for its lease", "singleton", c.cfg.Name, "error", err)
	}
}
