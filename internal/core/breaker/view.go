package breaker

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// View is a breaker as seen by a place that does not own it. Calls pass a closed breaker
// immediately, and the place reports their outcomes to the owner. Only the owner gives out probes,
// so places with outdated views together never make more probes than the config allows. A view that
// does not know the state of the breaker yet lets nothing through.
type View struct {
	news  News
	heard bool
	asked bool // the view has asked for a probe and has no answer yet
	out   ToOwner
	tally Report // successes that are not reported yet
	now   model.Time
}

// NewView returns a view that does not know the state of the breaker yet.
func NewView() *View { return &View{} }

// Allow asks to make one call. While the view waits for the owner, a refusal has a zero Until: the
// next News says when to try again.
func (v *View) Allow(now model.Time, lease time.Duration) Answer {
	now = v.tick(now)
	n := &v.news
	switch {
	case !v.heard:
		v.ask(lease)
		return Answer{Why: "its owner has not answered yet"}
	case v.hasProbe(now):
		a := Answer{OK: true, Permit: n.Probe}
		n.Probe = Permit{}
		return a
	case now < n.Until:
		return Answer{Until: n.Until, Why: n.Why}
	case n.State == Closed:
		return Answer{OK: true, Permit: Permit{Generation: n.Generation}}
	}

	v.ask(lease)
	return Answer{Why: "half-open, the owner is asked for a probe"}
}

// Until returns the time before which nothing passes, as far as this place knows, and why. The time
// is zero when a call may pass, or may ask for a probe.
func (v *View) Until(now model.Time) (until model.Time, why string) {
	if now = max(now, v.now); now < v.news.Until && !v.hasProbe(now) {
		return v.news.Until, v.news.Why
	}
	return 0, ""
}

// hasProbe reports whether there is a probe that a call may use.
func (v *View) hasProbe(now model.Time) bool {
	return v.news.Probe.Probe != 0 && v.news.Probe.Lease > now && v.news.Held <= now
}

// Done reports how a call ended.
func (v *View) Done(now model.Time, p Permit, how Outcome) {
	now = v.tick(now)
	if v.tally.Calls > 0 && (v.news.Generation != v.tally.Permit.Generation || now.Sub(v.tally.At) >= v.news.Tally) {
		v.flush()
	}

	switch {
	case p.Probe == 0 && (p.Generation != v.news.Generation || how == Neither):
	case p.Probe == 0 && how == Succeeded:
		if v.news.Tally == 0 {
			return
		}
		if v.tally.Calls == 0 {
			v.tally = Report{Permit: p, At: now}
		}
		v.tally.Calls++
	default:
		v.flush()
		v.out.Reports = append(v.out.Reports, Report{Permit: p, How: how})
	}
}

// RetryAfter reports a Retry-After of the called service.
func (v *View) RetryAfter(until model.Time) { v.out.RetryAfter = max(v.out.RetryAfter, until) }

// Receive applies news. It reports whether a call that was refused may pass now.
func (v *View) Receive(now model.Time, n News) (retry bool) {
	now = v.tick(now)
	if kept := v.news.Probe; n.Probe.Probe == 0 && kept.Lease > now {
		n.Probe = kept // the owner gave it earlier, and no call has used it
	}
	if n.Probe.Generation != n.Generation {
		// The probe belongs to a state of the breaker that is over.
		n.Probe = Permit{}
	}
	v.news, v.heard, v.asked = n, true, v.asked && !n.Answer
	return now >= n.Until || v.hasProbe(now)
}

// Tell returns the next message to the owner. It reports false when there is none.
func (v *View) Tell() (m ToOwner, ok bool) {
	m, v.out = v.out, ToOwner{}
	return m, len(m.Reports) > 0 || m.Ask || !m.RetryAfter.IsZero()
}

// ask requests a probe, unless a request is pending.
func (v *View) ask(lease time.Duration) {
	if !v.asked {
		v.asked, v.out.Ask, v.out.Lease = true, true, lease
	}
}

// flush moves the counted successes into the next message.
func (v *View) flush() {
	if v.tally.Calls > 0 {
		v.out.Reports = append(v.out.Reports, v.tally)
		v.tally = Report{}
	}
}

// tick returns the time, or the latest time seen if that is later.
func (v *View) tick(now model.Time) model.Time {
	v.now = max(v.now, now)
	return v.now
}
