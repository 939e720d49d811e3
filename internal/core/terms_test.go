package core_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// This file has the parts of the naive model that concern start times, time-outs and repeated runs.

func naiveTerms(s *model.Start, t *model.Terms) {
	if t == nil {
		return
	}
	begins := s.At

	if t.Delay > 0 {
		begins = s.At.Add(t.Delay)
	} else if t.NotBefore > s.At {
		begins = t.NotBefore
	}

	if begins != s.At {
		s.Begins = begins
	}
	if t.Timeout > 0 || t.Retry != nil {
		s.Terms = &model.Terms{Timeout: t.Timeout, Retry: t.Retry}
	}
	if t.Timeout > 0 {
		s.Expires = begins.Add(t.Timeout)
	}
}

// isBeforeStart reports whether the run still waits for its start time.
func (r *naiveRun) isBeforeStart() bool {
	_, waits := r.timers["begin\x1f"]
	return waits
}

func (r *naiveRun) withheld() bool { return r.isPaused() || r.isBeforeStart() }

// nextAttempt reports whether another attempt follows, and when it begins.
func (r *naiveRun) nextAttempt(end *model.Close, at model.Time) (model.Time, bool) {
	policy, own := end.Retry, true
	if t := r.start.Terms; t != nil && t.Retry != nil {
		policy, own = t.Retry, false
	}
	tries := max(r.start.Attempt, 1)
	switch {
	case end.Status != model.Failed, policy == nil, r.cancel() != 0, end.Failure.Permanent, own && end.Final, policy.MaxAttempts > 0 && tries >= policy.MaxAttempts:
		return 0, false
	}
	begins := at.Add(max(policy.Initial, end.RetryAfter)) // pauses are constant here
	return begins, r.start.Expires == 0 || begins < r.start.Expires
}

// terms draws the terms of a start: its delay, its time-out and its retry policy.
func (p *play) terms(t *rapid.T) *model.Terms {
	if rapid.IntRange(0, 2).Draw(t, "terms") > 0 {
		return nil
	}
	terms := &model.Terms{Timeout: pick(t, "timeout", 0, 0, 20*time.Second, 60*time.Second)}
	switch rapid.IntRange(0, 3).Draw(t, "begins") {
	case 0:
		terms.Delay = 10 * time.Second
	case 1:
		terms.NotBefore = p.w.now.Add(time.Duration(rapid.IntRange(-5, 15).Draw(t, "at")) * time.Second)
	}
	terms.Retry = p.policy(t)
	return terms
}

func (p *play) policy(t *rapid.T) *model.Retry {
	if rapid.Bool().Draw(t, "no policy") {
		return nil
	}
	return &model.Retry{MaxAttempts: rapid.IntRange(0, 3).Draw(t, "attempts"), Initial: 5 * time.Second, Max: 5 * time.Second, Coefficient: 1000}
}

// failure draws how a run fails.
func (p *play) failure(t *rapid.T, end *model.Close) {
	end.Failure = &model.Failure{Kind: codeFailure, Message: p.number(), Permanent: rapid.IntRange(0, 4).Draw(t, "permanent") == 0}
	end.Retry, end.Final = p.policy(t), rapid.IntRange(0, 4).Draw(t, "final") == 0
	end.RetryAfter = pick(t, "retry after", 0, 0, 8*time.Second)
}

// A run that waits for its start time says so as its reason. Whatever arrives, its state in memory
// equals its state in the store.
func TestWaitingRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t.Fatalf)
	a := address("k")
	d := w.deliver(&model.Message{Kind: model.MessageStart, To: a, Terms: &model.Terms{Delay: time.Minute, Timeout: time.Hour}})
	x := w.seat(a).x
	if why := x.Withheld(); !x.Parked || why == nil || why.Code != model.WaitStart || why.Until != w.now.Add(time.Minute) || d.Mark == nil || !d.Mark.Parked {
		t.Fatalf("parked %v, waits for %v, mark %+v", x.Parked, x.Withheld(), d.Mark)
	}

	w.deliver(&model.Message{Kind: model.MessageSignal, To: a, Name: "s"})
	if w.crash(a); !w.seat(a).x.Parked || w.seat(a).x.Withheld() == nil {
		t.Fatal("a signal ended the wait")
	}
	if d := w.fire(a, "begin\x1f"); d.HasWrites() {
		t.Fatal("it began before its time")
	}

	w.now = w.now.Add(time.Minute)
	if d := w.fire(a, "begin\x1f"); !d.Begins || d.Mark == nil || d.Mark.Parked || len(d.Events) > 0 {
		t.Fatalf("its time has come: %+v", d)
	}
	w.now = w.now.Add(time.Hour)
	d = w.fire(a, "expire\x1f")
	if d.Close == nil || d.Close.Status != model.Failed || d.Close.Failure.Kind != fault.Timeout.String() || !d.StopAll {
		t.Fatalf("it has taken too long: %+v", d)
	}

	if core.OwnTimer("t1") || !core.OwnTimer("expire\x1f") {
		t.Error("timers of the code are taken for those of the run, or the other way round")
	}
}

// If a run fails, the core repeats it as its policy says, unless a client has canceled the run, or
// the execution times out before the next attempt begins.
func TestFailedRunIsRepeated(t *testing.T) {
	t.Parallel()
	a, fresh := address("k"), runID(77)
	for name, test := range map[string]struct {
		timeout  time.Duration
		canceled bool
		repeated bool
	}{
		"a policy":                {repeated: true},
		"a time-out later":        {timeout: time.Hour, repeated: true},
		"a time-out before":       {timeout: 30 * time.Second},
		"a request for its end":   {canceled: true},
		"both, with a late limit": {timeout: time.Hour, canceled: true},
	} {
		w := newWorld(t.Fatalf)
		policy := &model.Retry{MaxAttempts: 3, Initial: time.Minute, Coefficient: 1000}
		w.deliver(&model.Message{Kind: model.MessageStart, To: a, Terms: &model.Terms{Timeout: test.timeout, Retry: policy}})
		if test.canceled {
			w.deliver(&model.Message{Kind: model.MessageCancel, To: a})
		}

		x := w.seat(a).x
		end := &model.Close{Status: model.Failed, Failure: &model.Failure{Message: "down"}}
		next, _, err := core.Apply(x, &model.Turn{Run: x.Start.Run, Seen: x.Next - 1, Close: end}, w.now, fresh, core.DefaultLimits)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if repeated := next.Start.Run == fresh; repeated != test.repeated {
			t.Errorf("%s: the run is repeated: %v, want %v", name, repeated, test.repeated)
		}
	}
}
