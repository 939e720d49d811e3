package loan

import "time"

// Pace holds the intervals of the machines.
type Pace struct {
	KnockAgain time.Duration // time between two knocks about waiting tasks at a silent node
	PendAgain  time.Duration // time between two knocks at a node with entries to fetch
	// AnswerWait is how long a poll waits for claims that are being committed.
	AnswerWait time.Duration
	// ForgetAfter is how long a node that holds nothing must be silent before this node forgets it.
	ForgetAfter time.Duration
	// SureAfter is how long a claim may be in flight to a node that does not list it.
	SureAfter   time.Duration
	TellMoved   time.Duration // how long the owner still sends a claim after its run has moved
	CallTimeout time.Duration // time limit of a poll
	PollEvery   time.Duration // time between two polls while a worker has a claim of the other node
	FirstPause  time.Duration // pause after a poll without a result; it doubles each time
	// RememberFor is how long ended claims are remembered, so that a late answer does not start
	// them again.
	RememberFor time.Duration
}

// Standard is the pace of production, for leases of ten seconds. No claim is in flight for longer
// than SureAfter: a poll ends after CallTimeout, and a node that is paused for longer than its
// lease loses the lease. TellMoved is shorter than SureAfter. The difference covers the duration of
// a poll, and a difference between the clocks of two nodes.
var Standard = Pace{
	KnockAgain: 5 * time.Second, PendAgain: time.Second, AnswerWait: 250 * time.Millisecond, ForgetAfter: time.Minute,
	SureAfter: 15 * time.Second, TellMoved: 10 * time.Second, CallTimeout: 3 * time.Second, PollEvery: 5 * time.Second,
	FirstPause: 100 * time.Millisecond, RememberFor: time.Minute,
}

// For returns the same pace for leases of another length.
func (p Pace) For(ttl time.Duration) Pace {
	scaled := func(d time.Duration) time.Duration {
		return max(1, time.Duration(float64(d)*float64(ttl)/float64(10*time.Second)))
	}
	return Pace{
		KnockAgain: scaled(p.KnockAgain), PendAgain: scaled(p.PendAgain), AnswerWait: scaled(p.AnswerWait), ForgetAfter: scaled(p.ForgetAfter),
		SureAfter: scaled(p.SureAfter), TellMoved: scaled(p.TellMoved), CallTimeout: scaled(p.CallTimeout), PollEvery: scaled(p.PollEvery),
		FirstPause: scaled(p.FirstPause), RememberFor: scaled(p.RememberFor),
	}
}
