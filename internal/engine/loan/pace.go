package loan

import "time"

// Pace says how long the machines wait for what.
type Pace struct {
	KnockAgain time.Duration // before a silent node is told once more that something waits
	PendAgain  time.Duration // the same for a node that is to fetch something
	// until a poll is answered although claims are on their way to the store
	AnswerWait  time.Duration
	ForgetAfter time.Duration // of silence, for a node that holds nothing
	// until a claim that a node does not list is not on its way to it any more
	SureAfter   time.Duration
	TellMoved   time.Duration // for which a claim of a run that has moved is still told
	CallTimeout time.Duration // of a poll
	PollEvery   time.Duration // while something of the other node is held
	FirstPause  time.Duration // after a poll that brought nothing, doubled each time
	// claims that have ended, so that a late answer does not begin them again
	RememberFor time.Duration
}

// Standard is the pace of production, for leases of ten seconds. Nobody waits for an answer as long
// as SureAfter: a poll ends after CallTimeout, and a node that pauses for longer loses its lease.
// TellMoved leaves room for the call and for the clocks of two nodes.
var Standard = Pace{
	KnockAgain: 5 * time.Second, PendAgain: time.Second, AnswerWait: 250 * time.Millisecond, ForgetAfter: time.Minute,
	SureAfter: 15 * time.Second, TellMoved: 10 * time.Second, CallTimeout: 3 * time.Second, PollEvery: 5 * time.Second,
	FirstPause: 100 * time.Millisecond, RememberFor: time.Minute,
}

// For is the same pace for leases of another length.
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
