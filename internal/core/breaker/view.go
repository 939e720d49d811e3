package breaker

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// View is a breaker as another place than its owner acts on it. Through a closed one calls pass at
// once; what they tell goes to the owner. Probes are given by the owner alone, so their number is
// kept whatever a view believes. A view that has not heard how the breaker stands lets nothing
// through.
type View struct {
	news  News
	heard bool
	asked bool // and not yet answered
	out   ToOwner
	tally Report // successes that are not told yet
	now   model.Time
}

// NewView knows nothing yet.
func NewView() *View { return &View{} }

// Allow asks for one call. The Until of a refusal is zero while the owner is asked: news tell when
// to try again.
func (v *View) Allow(now model.Time, lease time.Duration) Answer {
	now = v.tick(now)
	n := &v.news
	switch {
	case !v.heard:
		v.ask(lease)
		return Answer{Why: "its owner has not answered yet"}
	case v.probes(now):
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

// Until is before when nothing passes, as far as this place knows, and why; zero when a call may
// pass or ask.
func (v *View) Until(now model.Time) (until model.Time, why string) {
	if now = max(now, v.now); now < v.news.Until && !v.probes(now) {
		return v.news.Until, v.news.Why
	}
	return 0, ""
}

// probes reports whether there is a probe that a call may use.
func (v *View) probes(now model.Time) bool {
	return v.news.Probe.Probe != 0 && v.news.Probe.Lease > now && v.news.Held <= now
}

// Done tells how a call ended.
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

// RetryAfter is what the other side has said.
func (v *View) RetryAfter(until model.Time) { v.out.RetryAfter = max(v.out.RetryAfter, until) }

// Receive takes news. It reports whether a call that was refused may pass now.
func (v *View) Receive(now model.Time, n News) (retry bool) {
	now = v.tick(now)
	if kept := v.news.Probe; n.Probe.Probe == 0 && kept.Lease > now {
		n.Probe = kept // given before, and not used yet
	}
	if n.Probe.Generation != n.Generation {
		// of a state that has ended meanwhile, as this place has seen itself or has heard
		n.Probe = Permit{}
	}
	v.news, v.heard, v.asked = n, true, v.asked && !n.Answer
	return now >= n.Until || v.probes(now)
}

// Tell is what the owner is to hear; nothing if not ok.
func (v *View) Tell() (m ToOwner, ok bool) {
	m, v.out = v.out, ToOwner{}
	return m, len(m.Reports) > 0 || m.Ask || !m.RetryAfter.IsZero()
}

func (v *View) ask(lease time.Duration) {
	if !v.asked {
		v.asked, v.out.Ask, v.out.Lease = true, true, lease
	}
}

func (v *View) flush() {
	if v.tally.Calls > 0 {
		v.out.Reports = append(v.out.Reports, v.tally)
		v.tally = Report{}
	}
}

func (v *View) tick(now model.Time) model.Time {
	v.now = max(v.now, now)
	return v.now
}
