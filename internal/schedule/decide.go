package schedule

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/cadence"
	"github.com/perdure/perdure/internal/fault"
)

// Bounds of a decision.
const (
	maxBurst  = 100    // ticks that begin at one moment
	maxOpen   = 100    // executions whose end the schedule waits for
	maxRecent = 10     // fires that are remembered
	maxScan   = 10_000 // ticks that a decision examines at a time
	maxMissed = 10_000 // missed ticks that one decision counts; at most maxScan
)

// Kinds of fires.
const (
	ByTick     = "tick"
	ByTrigger  = "trigger"
	ByBackfill = "backfill"
)

// Fire is one execution that the schedule has begun, or will begin.
type Fire struct {
	Kind     string    `json:"kind"`
	Tick     time.Time `json:"tick"` // the planned time; for a trigger, when it arrived
	Workflow string    `json:"workflow"`
	Key      string    `json:"key"`
	At       time.Time `json:"at,omitzero"` // when the execution started
}

// Range is the rest of a backfill.
type Range struct {
	After time.Time `json:"after"` // ticks up to here have begun
	Until time.Time `json:"until"` // not included
}

// Counts are the numbers of all ticks by their outcome.
type Counts struct {
	Fired      int64 `json:"fired"`      // all executions that began
	Triggered  int64 `json:"triggered"`  // of Fired, by a trigger of a person or program
	Backfilled int64 `json:"backfilled"` // of Fired, by a backfill
	Skipped    int64 `json:"skipped"`    // ticks that were skipped because another execution was open
	// Missed counts ticks for which nothing started, for one of three reasons: no process served
	// the schedule within the catch-up window, the schedule was paused, or more than maxBurst (with
	// Allow) or maxScan ticks were due at the same moment. The number is exact, except that a
	// decision counts maxMissed if it finds more.
	Missed int64 `json:"missed"`
	Failed int64 `json:"failed"` // executions that failed while the schedule waited for their end
}

// Status is the state of a schedule.
type Status struct {
	Created time.Time `json:"created"`
	Changed time.Time `json:"changed"`
	Decided time.Time `json:"decided"`       // every tick up to here is decided
	Tick    time.Time `json:"tick,omitzero"` // the next tick, or zero
	// Wake is when the next tick begins: Tick plus its jitter. It is zero while the schedule is
	// paused.
	Wake      time.Time `json:"wake,omitzero"`
	Paused    bool      `json:"paused"`
	Why       string    `json:"why,omitempty"`
	Open      []Fire    `json:"open,omitempty"`
	Waiting   *Fire     `json:"waiting,omitempty"`
	Backfills []Range   `json:"backfills,omitempty"`
	Recent    []Fire    `json:"recent,omitempty"` // newest first
	Counts    Counts    `json:"counts"`
	LastError string    `json:"last_error,omitempty"`
}

// Verbs are the names of updates that a schedule answers.
const (
	VerbApply    = "apply"
	VerbPause    = "pause"
	VerbResume   = "resume"
	VerbTrigger  = "trigger"
	VerbBackfill = "backfill"
	VerbDelete   = "delete"
)

// Command is the content of an update.
type Command struct {
	Verb   string    `json:"-"`
	Spec   *Spec     `json:"spec,omitempty"`
	Paused bool      `json:"paused,omitempty"` // whether a new schedule starts paused
	Why    string    `json:"why,omitempty"`
	From   time.Time `json:"from,omitzero"`
	To     time.Time `json:"to,omitzero"`
}

// Answer is the answer to an update.
type Answer struct {
	// Change is the effect of an apply: created, changed or unchanged.
	Change string `json:"change,omitempty"`
	// Key is the key of the execution that a trigger started; empty if the execution waits for its
	// turn.
	Key string `json:"key,omitempty"`
	// Ticks is how many ticks a backfill starts.
	Ticks int `json:"ticks,omitempty"`
	// Kind and Text describe the error, if the update failed.
	Kind string `json:"error_kind,omitempty"`
	Text string `json:"error,omitempty"`
}

// Changes of an apply.
const (
	Created   = "created"
	Changed   = "changed"
	Unchanged = "unchanged"
)

// Ended is an execution of the schedule that has ended.
type Ended struct {
	Key   string
	Error string // empty when it completed
}

// Situation is the input of a decision. Spec is nil before the first apply.
type Situation struct {
	Name     string
	Now      time.Time
	Spec     *Spec
	Status   Status
	Ended    []Ended
	Commands []Command
}

// Decision says what the schedule does.
type Decision struct {
	Status Status `json:"status"`
	// Adopt is the number of a command, counted from 1: the definition of this command becomes the
	// current one. It is 0 if no command has that effect.
	Adopt   int      `json:"adopt,omitempty"`
	Start   []Fire   `json:"start,omitempty"`
	Cancel  []Fire   `json:"cancel,omitempty"`
	Answers []Answer `json:"answers,omitempty"` // the answers to the commands, in order
	Over    bool     `json:"over,omitempty"`    // the schedule is deleted
}

// Decide returns what a schedule does next. It depends only on its argument and on the database of
// time zones, and does not change its argument.
func Decide(in Situation) (Decision, error) {
	d := decider{name: in.Name, now: in.Now, spec: in.Spec}
	d.Status = in.Status
	d.Status.Open = slices.Clone(in.Status.Open)
	d.Status.Recent = slices.Clone(in.Status.Recent)
	d.Status.Backfills = slices.Clone(in.Status.Backfills)

	// The order matters. Ended executions make room for ticks. Ticks up to now belong to the
	// definition that applied until now, so they come before commands.
	if err := d.load(); err != nil {
		return Decision{}, err
	}

	d.removeEnded(in.Ended)
	d.decideDue()
	for i := range in.Commands {
		answer, err := d.command(i, &in.Commands[i])
		if err != nil {
			answer = Answer{Kind: fault.KindOf(err).String(), Text: err.Error()}
		}
		d.Answers = append(d.Answers, answer)
	}

	d.release()
	d.plan()
	return d.Decision, nil
}

// decider builds a decision.
type decider struct {
	Decision
	name    string
	now     time.Time
	spec    *Spec
	cadence cadence.Cadence
	missed  int // ticks that this decision has counted as missed
}

// load parses the cadence of the definition.
func (d *decider) load() (err error) {
	d.cadence = cadence.Cadence{}
	if d.spec != nil {
		d.cadence, err = d.spec.Cadence()
	}
	return err
}

// removeEnded removes executions that have ended.
func (d *decider) removeEnded(all []Ended) {
	s := &d.Status
	for _, e := range all {
		s.Open = slices.DeleteFunc(s.Open, func(f Fire) bool { return f.Key == e.Key })
		if e.Error != "" {
			s.Counts.Failed++
			s.LastError = short(e.Key + ": " + e.Error)
		}
	}
}

// next returns the first tick after a point in time within the bounds of the definition.
func (d *decider) next(after time.Time) (time.Time, bool) {
	if s := d.spec; s == nil {
		return time.Time{}, false
	} else if !s.StartAt.IsZero() && after.Before(s.StartAt) {
		after = s.StartAt.Add(-time.Nanosecond)
	}
	t, ok := d.cadence.Next(after)
	if !ok || !d.spec.EndAt.IsZero() && !t.Before(d.spec.EndAt) {
		return time.Time{}, false
	}
	return t, true
}

// between returns the ticks after one point in time and up to another, at most as many as most
// says. more says that there are further ticks in that time.
func (d *decider) between(after, upTo time.Time, most int) (all []time.Time, more bool) {
	for {
		t, ok := d.next(after)
		if !ok || t.After(upTo) {
			return all, false
		}
		if len(all) == most {
			return all, true
		}
		all = append(all, t)
		after = t
	}
}

// jitter returns the delay of a tick. It is the same in every process.
func (d *decider) jitter(tick time.Time) time.Duration {
	most := time.Duration(d.spec.Jitter)
	if most <= 0 {
		return 0
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s@%d", d.name, tick.UnixMilli())
	return time.Duration(h.Sum64()%uint64(most/time.Millisecond+1)) * time.Millisecond
}

// decideDue decides everything that has become due.
func (d *decider) decideDue() {
	s := &d.Status
	if d.spec == nil || s.Paused || !s.Decided.Before(d.now) {
		return
	}
	after := s.Decided
	cutoff := d.now.Add(-time.Duration(d.spec.CatchUp) - time.Duration(d.spec.Jitter))
	if after.Before(cutoff) {
		d.missAll(after, cutoff)
		after = cutoff
	}
	due, decided := d.dueTicks(after)
	s.Decided = decided
	d.fire(due)
}

// miss counts missed ticks. It counts at most maxMissed in one decision.
func (d *decider) miss(n int) {
	n = min(n, maxMissed-d.missed)
	d.missed += n
	d.Status.Counts.Missed += int64(n)
}

// missAll counts all ticks in a time as missed.
func (d *decider) missAll(after, upTo time.Time) {
	all, _ := d.between(after, upTo, maxMissed)
	d.miss(len(all))
}

// newest returns the ticks after a point in time and up to now. If there are more than maxScan, it
// counts the older ones as missed, and returns only newer ones.
func (d *decider) newest(after time.Time) []time.Time {
	all, more := d.between(after, d.now, maxScan)
	for more {
		// Leave out the older half of the time, until the rest is small enough. Either all contains
		// every tick of that half, or the half has more than maxMissed ticks, and the exact number
		// does not matter.
		middle := after.Add(d.now.Sub(after) / 2)
		older, _ := slices.BinarySearchFunc(all, middle, func(t, middle time.Time) int {
			if t.After(middle) {
				return 1
			}
			return -1
		})
		d.miss(older)
		after = middle
		all, more = d.between(after, d.now, maxScan)
	}
	return all
}

// dueTicks returns the ticks whose time has come. decided is the time up to which this call decides
// about ticks.
func (d *decider) dueTicks(after time.Time) (due []time.Time, decided time.Time) {
	all := d.newest(after)
	decided = d.now
	for i, t := range all {
		if t.Add(d.jitter(t)).After(d.now) { // later calls return the later ticks
			all, decided = all[:i], t.Add(-time.Nanosecond)
			break
		}
	}
	return all, decided
}

// fire begins, queues or skips ticks that are due at the same moment. If not all of them can begin,
// the newest ones begin.
func (d *decider) fire(due []time.Time) {
	s := &d.Status
	room := len(due)
	switch d.spec.Overlap {
	case Allow:
		room = min(room, maxBurst)
		d.miss(len(due) - room)
	case Cancel:
		room = min(room, 1)
		s.Counts.Skipped += int64(len(due) - room)
	case Queue:
		free := 0
		if d.idle() {
			free++
		}
		if s.Waiting == nil {
			free++
		}
		room = min(room, free)
		s.Counts.Skipped += int64(len(due) - room)
	case Skip:
		free := 0
		// A tick that is due during a backfill is not skipped. It waits for the open execution.
		if d.idle() || len(s.Backfills) > 0 && s.Waiting == nil {
			free = 1
		}
		room = min(room, free)
		s.Counts.Skipped += int64(len(due) - room)
	}

	for _, t := range due[len(due)-room:] {
		d.begin(Fire{Kind: ByTick, Tick: t})
	}
}

// idle reports whether an execution can begin without overlapping another execution.
func (d *decider) idle() bool { return len(d.Status.Open) == 0 && d.Status.Waiting == nil }

// begin starts an execution, or queues it.
func (d *decider) begin(f Fire) {
	s := &d.Status
	f.Workflow, f.Key = d.spec.Job.Type(), d.key(&f)
	if d.spec.Overlap == Allow || len(s.Open) == 0 {
		d.start(f)
		return
	}
	if s.Waiting != nil {
		s.Counts.Skipped++
	}
	s.Waiting = &f
	if d.spec.Overlap == Cancel {
		d.Cancel = append(d.Cancel, s.Open...)
	}
}

// start records that an execution begins now.
func (d *decider) start(f Fire) {
	s := &d.Status
	f.At = d.now
	d.Start = append(d.Start, f)
	s.Counts.Fired++

	switch f.Kind {
	case ByTrigger:
		s.Counts.Triggered++
	case ByBackfill:
		s.Counts.Backfilled++
	}

	if s.Open = append(s.Open, f); len(s.Open) > maxOpen {
		s.Open = s.Open[len(s.Open)-maxOpen:]
	}
	if s.Recent = slices.Insert(s.Recent, 0, f); len(s.Recent) > maxRecent {
		s.Recent = s.Recent[:maxRecent]
	}
}

// key returns the key of an execution: the schedule and the tick, so that a tick cannot begin
// twice.
func (d *decider) key(f *Fire) string {
	key := d.name + "@" + stamp(f.Tick)
	if f.Kind == ByTrigger {
		key += fmt.Sprintf("-trigger-%d", d.Status.Counts.Triggered+1)
	}
	return key
}

// release begins the queued execution, and then backfills, when there is room.
func (d *decider) release() {
	s := &d.Status
	if d.spec == nil || d.Over {
		return
	}

	if f := s.Waiting; f != nil && (len(s.Open) == 0 || d.spec.Overlap == Allow) && (!s.Paused || f.Kind == ByTrigger) {
		s.Waiting = nil
		d.start(*f)
	}

	for len(s.Backfills) > 0 && !s.Paused && s.Waiting == nil {
		most := 1 // backfills run one after the other
		if d.spec.Overlap == Allow {
			most = maxOpen
		}
		if len(s.Open) >= most {
			return
		}

		r := &s.Backfills[0]
		t, ok := d.next(r.After)
		if !ok || !t.Before(r.Until) {
			s.Backfills = s.Backfills[1:]
			continue
		}

		r.After = t
		f := Fire{Kind: ByBackfill, Tick: t, Workflow: d.spec.Job.Type()}
		f.Key = d.key(&f)
		d.start(f)
	}
}

// plan computes when the schedule must decide next.
func (d *decider) plan() {
	s := &d.Status
	s.Tick, s.Wake = time.Time{}, time.Time{}
	if s.Paused || d.spec == nil || d.Over {
		return
	}
	t, ok := d.next(s.Decided)
	if !ok {
		return
	}
	s.Tick, s.Wake = t, t.Add(d.jitter(t))
}

// command applies an update.
func (d *decider) command(i int, c *Command) (Answer, error) {
	s := &d.Status
	if d.Over {
		return Answer{}, fault.New(fault.NotFound, "schedule %s has been deleted", d.name)
	}
	if d.spec == nil && c.Verb != VerbApply && c.Verb != VerbDelete {
		return Answer{}, fault.New(fault.NotFound, "schedule %s has not been applied yet", d.name)
	}

	switch c.Verb {
	case VerbApply:
		return d.apply(i, c)
	case VerbPause:
		s.Paused, s.Why = true, short(c.Why)
	case VerbResume:
		if s.Paused {
			d.settle()
			s.Paused, s.Why = false, ""
		}
	case VerbTrigger:
		return d.trigger()
	case VerbBackfill:
		return d.backfill(c)
	case VerbDelete:
		d.Over, s.Waiting, s.Backfills = true, nil, nil
	default:
		return Answer{}, fault.New(fault.Invalid, "schedule %s: there is no verb %q", d.name, c.Verb)
	}

	return Answer{}, nil
}

// apply adopts a definition. The ticks of the old definition have been decided before. A different
// cadence applies from now on.
func (d *decider) apply(i int, c *Command) (Answer, error) {
	s := &d.Status
	if c.Spec == nil {
		return Answer{}, fault.New(fault.Invalid, "schedule %s: an apply without a definition", d.name)
	}
	spec := *c.Spec
	if err := spec.Complete(d.name); err != nil {
		return Answer{}, err
	}

	old := d.spec
	if old != nil && old.same(&spec) {
		return Answer{Change: Unchanged}, nil
	}
	if old != nil && !old.sameTicks(&spec) {
		d.settle()
	}
	d.spec, d.Adopt = &spec, i+1
	if err := d.load(); err != nil {
		return Answer{}, err
	}

	d.retarget()
	s.Changed = d.now
	if old == nil {
		s.Created, s.Decided, s.Paused = d.now, d.now, c.Paused
		if c.Paused {
			s.Why = short(c.Why)
		}
		return Answer{Change: Created}, nil
	}

	return Answer{Change: Changed}, nil
}

// retarget moves everything that has not begun to the job of the new definition: the queued
// execution, and the executions that this decision starts. They start with the input of the new
// definition, so they must not go to the old workflow or activity.
func (d *decider) retarget() {
	s := &d.Status
	kind := d.spec.Job.Type()
	if s.Waiting != nil {
		next := *s.Waiting
		next.Workflow = kind
		s.Waiting = &next
	}

	for i := range d.Start {
		f := &d.Start[i]
		for _, list := range [][]Fire{s.Open, s.Recent} {
			for n := range list {
				if list[n] == *f {
					list[n].Workflow = kind
				}
			}
		}
		f.Workflow = kind
	}
}

// settle decides every tick up to now, before another cadence applies or a pause ends. A tick that
// still waits for its jitter begins immediately.
func (d *decider) settle() {
	s := &d.Status
	if s.Paused {
		d.missAll(s.Decided, d.now)
	} else {
		d.fire(d.newest(s.Decided))
	}
	s.Decided = later(s.Decided, d.now)
}

// trigger starts an execution now, because a caller asks for it.
func (d *decider) trigger() (Answer, error) {
	s := &d.Status
	if d.spec.Overlap != Allow && len(s.Open) > 0 {
		switch {
		case d.spec.Overlap == Skip:
			return Answer{}, fault.New(fault.Conflict, "schedule %s starts nothing while %s/%s is open", d.name, s.Open[0].Workflow, s.Open[0].Key)
		case d.spec.Overlap == Queue && s.Waiting != nil:
			return Answer{}, fault.New(fault.Conflict, "schedule %s: %s waits for its turn already", d.name, s.Waiting.Key)
		}
	}
	began := len(d.Start)
	d.begin(Fire{Kind: ByTrigger, Tick: d.now})
	if len(d.Start) > began {
		return Answer{Key: d.Start[began].Key}, nil
	}
	return Answer{}, nil
}

// backfill starts the executions of all ticks in a range of the past.
func (d *decider) backfill(c *Command) (Answer, error) {
	from, to := c.From.UTC(), c.To.UTC()
	for field, t := range map[string]time.Time{"from": from, "to": to} {
		if err := cadence.CheckInstant(field, t); err != nil {
			return Answer{}, fault.New(fault.Invalid, "backfill of schedule %s: %w", d.name, err)
		}
	}

	switch {
	case !from.Before(to):
		return Answer{}, fault.New(fault.Invalid, "backfill of schedule %s: from %s is not before %s", d.name, stamp(from), stamp(to))
	case to.After(d.now):
		return Answer{}, fault.New(fault.Invalid, "backfill of schedule %s: %s is in the future", d.name, stamp(to))
	case len(d.Status.Backfills) >= MaxBackfills:
		return Answer{}, fault.New(fault.Exhausted, "schedule %s has %d backfills that have not ended, which is the limit", d.name, MaxBackfills)
	}

	ticks, more := d.between(from.Add(-time.Nanosecond), to.Add(-time.Nanosecond), MaxBackfill)
	if more {
		return Answer{}, fault.New(fault.Invalid, "backfill of schedule %s: there are more than %d ticks from %s to %s; ask for fewer at a time", d.name, MaxBackfill, stamp(from), stamp(to))
	}
	if len(ticks) > 0 {
		d.Status.Backfills = append(d.Status.Backfills, Range{After: from.Add(-time.Nanosecond), Until: to})
	}

	return Answer{Ticks: len(ticks)}, nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// short cuts a text of a user to the length that the schedule stores.
func short(s string) string {
	if len(s) > maxText {
		cut := maxText
		for cut > maxText-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}
