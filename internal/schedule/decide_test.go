package schedule

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/cadence"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

var zero = time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)

// hourly returns the definition of an hourly schedule with an overlap policy.
func hourly(o Overlap) *Spec {
	s := &Spec{Every: Duration(time.Hour), Job: Job{Name: "report"}, Overlap: o}
	if err := s.Complete("s"); err != nil {
		panic(err)
	}
	return s
}

// tester is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// world plays a schedule: executions that it starts stay open until the test ends them.
type world struct {
	t      tester
	now    time.Time
	spec   *Spec
	status Status
	ended  []Ended
	keys   map[string]bool // of all executions that were started
	log    []string
}

func newWorld(t tester, s *Spec) *world {
	w := &world{t: t, now: zero, keys: map[string]bool{}}
	if a := w.tell(Command{Verb: VerbApply, Spec: s}); a.Change != Created {
		t.Fatalf("%+v", a)
	}
	return w
}

func (w *world) decide(commands ...Command) Decision {
	d, err := Decide(Situation{Name: "s", Now: w.now, Spec: w.spec, Status: w.status, Ended: w.ended, Commands: commands})
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := json.Marshal(d) // encode the decision as the history records it
	if err != nil {
		w.t.Fatal(err)
	}

	var again Decision
	if err := json.Unmarshal(data, &again); err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(d, again, cmpopts.EquateEmpty()); diff != "" {
		w.t.Fatalf("what is recorded is not what was decided: %s", diff)
	}

	if d.Adopt > 0 {
		w.spec = commands[d.Adopt-1].Spec
	}
	w.status, w.ended = d.Status, nil

	for _, f := range d.Start {
		if w.keys[f.Key] && f.Kind != ByBackfill {
			w.t.Fatalf("%s is begun twice", f.Key)
		}
		w.keys[f.Key] = true
		w.log = append(w.log, f.Kind+" "+f.Tick.Format("02T15:04"))
	}

	for _, f := range d.Cancel {
		w.log = append(w.log, "cancel "+f.Tick.Format("02T15:04"))
	}
	return d
}

func (w *world) tell(c Command) Answer { return w.decide(c).Answers[0] }

// at moves the clock to a time and lets the schedule decide.
func (w *world) at(clock string) {
	t, err := time.Parse("02T15:04", clock)
	if err != nil {
		w.t.Fatal(err)
	}
	w.now = time.Date(2026, 11, t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
	w.decide()
}

// end ends the open executions.
func (w *world) end() {
	for _, f := range w.status.Open {
		w.ended = append(w.ended, Ended{Key: f.Key})
	}
	w.decide()
}

func (w *world) want(log ...string) {
	w.t.Helper()
	if !slices.Equal(w.log, log) {
		w.t.Errorf("it did\n%s\nwant\n%s", strings.Join(w.log, "\n"), strings.Join(log, "\n"))
	}
	w.log = nil
}

func (w *world) counts(c Counts) {
	w.t.Helper()
	if diff := cmp.Diff(c, w.status.Counts); diff != "" {
		w.t.Errorf("counts (-want +got): %s", diff)
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	t.Run("skip", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hourly(Skip))
		w.at("15T01:00")
		w.at("15T02:00")
		w.end()
		w.want("tick 15T01:00")
		w.at("15T03:00")
		w.want("tick 15T03:00")
		w.counts(Counts{Fired: 2, Skipped: 1})
	})

	t.Run("queue", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hourly(Queue))
		w.at("15T01:00")
		w.at("15T02:00")
		w.at("15T03:00")
		w.want("tick 15T01:00")
		w.end()
		w.want("tick 15T02:00")
		w.end()
		w.want()
		w.counts(Counts{Fired: 2, Skipped: 1})
	})

	t.Run("allow", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hourly(Allow))
		w.at("15T01:00")
		w.at("15T02:00")
		w.want("tick 15T01:00", "tick 15T02:00")
		if len(w.status.Open) != 2 {
			t.Errorf("open: %v", w.status.Open)
		}
	})

	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hourly(Cancel))
		w.at("15T01:00")
		w.at("15T02:00")
		w.want("tick 15T01:00", "cancel 15T01:00")
		w.at("15T03:00") // the execution is still open
		w.want("cancel 15T01:00")
		w.end()
		w.want("tick 15T03:00")
		w.counts(Counts{Fired: 2, Skipped: 1})
	})
}

func TestCatchUp(t *testing.T) {
	t.Parallel()
	t.Run("no process ran for three hours", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hourly(Skip))
		w.at("15T03:30")
		w.want("tick 15T03:00")
		w.counts(Counts{Fired: 1, Skipped: 2})
	})

	t.Run("three days, all that is not too late", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hourly(Allow))
		w.at("18T00:30")
		if len(w.log) != 24 || w.log[0] != "tick 17T01:00" || w.log[23] != "tick 18T00:00" {
			t.Errorf("%q", w.log)
		}
		w.counts(Counts{Fired: 24, Missed: 48})
	})

	t.Run("the clock jumps by a year", func(t *testing.T) {
		t.Parallel()
		for _, o := range []Overlap{Skip, Queue, Allow, Cancel} {
			s := hourly(o)
			s.Every = Duration(time.Second)
			w := newWorld(t, s)
			w.now = zero.AddDate(1, 0, 0)
			d := w.decide()
			want := map[Overlap]int{Skip: 1, Queue: 1, Allow: maxBurst, Cancel: 1}[o]
			if len(d.Start) != want || !d.Start[len(d.Start)-1].Tick.After(w.now.Add(-2*time.Second)) {
				t.Errorf("%s: %d begin, the last one for %s", o, len(d.Start), d.Start[len(d.Start)-1].Tick)
			}
			if c := w.status.Counts; c.Missed != maxMissed {
				t.Errorf("%s: %+v", o, c)
			}
			if !w.status.Decided.Equal(w.now) || !w.status.Wake.Equal(w.now.Add(time.Second)) {
				t.Errorf("%s: decided up to %s, wakes at %s", o, w.status.Decided, w.status.Wake)
			}
		}
	})

	// Up to the bound, each tick counts once. Beyond the bound, the count is the bound.
	for n, missed := range map[int]int64{
		100: 0, 101: 1, 9_000: 8_900, 10_000: 9_900, 10_050: 9_950, 10_101: maxMissed, 15_000: maxMissed, 86_000: maxMissed, 200_000: maxMissed,
	} {
		t.Run(fmt.Sprintf("%d ticks are due", n), func(t *testing.T) {
			t.Parallel()
			for _, o := range []Overlap{Skip, Queue, Allow, Cancel} {
				s := hourly(o)
				s.Every, s.CatchUp = Duration(time.Second), Duration(24*time.Hour)
				w := newWorld(t, s)
				w.now = zero.Add(time.Duration(n) * time.Second)
				w.decide()
				c, waits := w.status.Counts, int64(0)
				if w.status.Waiting != nil {
					waits++
				}
				if got := c.Fired + c.Skipped + c.Missed + waits; got > int64(n) || n <= maxScan && got != int64(n) {
					t.Errorf("%s: %+v make %d", o, c, got)
				}
				if o == Allow && c.Missed != missed {
					t.Errorf("%s: %d missed, want %d", o, c.Missed, missed)
				}
			}
		})
	}

	t.Run("the clock does not go back", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hourly(Allow))
		w.at("15T02:00")
		w.at("15T01:00")
		w.at("15T03:00")
		w.want("tick 15T01:00", "tick 15T02:00", "tick 15T03:00")
	})
}

// A reason that is too long is cut between two characters.
func TestShortKeepsCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{strings.Repeat("x", maxText), strings.Repeat("x", maxText)},
		{strings.Repeat("x", maxText+1), strings.Repeat("x", maxText) + "…"},
		{strings.Repeat("x", maxText-1) + "éé", strings.Repeat("x", maxText-1) + "…"},
		{strings.Repeat("x", maxText-3) + "😀", strings.Repeat("x", maxText-3) + "…"},
		{strings.Repeat("x", maxText-2) + "é!", strings.Repeat("x", maxText-2) + "é…"},
		{"a\xffb", "a\ufffdb"},
	} {
		if got := short(c.text); got != c.want {
			t.Errorf("%q is cut to %q, want %q", c.text, got, c.want)
		}
	}
	if got := short(strings.Repeat("\x80", 2*maxText)); !utf8.ValidString(got) {
		t.Errorf("%q is not valid UTF-8", got)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hourly(Queue))
	w.at("15T01:00")
	w.at("15T02:00") // waits
	w.tell(Command{Verb: VerbPause, Why: strings.Repeat("x", 2000)})
	if len(w.status.Why) > maxText+3 || !w.status.Wake.IsZero() {
		t.Errorf("%d bytes of reason, wakes at %s", len(w.status.Why), w.status.Wake)
	}
	w.end()
	w.at("15T04:00")
	w.want("tick 15T01:00")
	if a := w.tell(Command{Verb: VerbTrigger}); a.Text != "" { // a trigger still works
		t.Error(a.Text)
	}
	w.want("trigger 15T04:00")
	w.end()
	w.now = w.now.Add(30 * time.Minute)
	w.tell(Command{Verb: VerbResume})
	w.want("tick 15T02:00") // it was due before the pause
	w.end()
	w.at("15T05:00")
	w.want("tick 15T05:00")
	w.counts(Counts{Fired: 4, Triggered: 1, Missed: 2})
}

func TestTriggerFollowsOverlap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hourly(Skip))
	w.at("15T01:00")
	if a := w.tell(Command{Verb: VerbTrigger}); a.Kind != fault.Conflict.String() || !strings.Contains(a.Text, "report/s@2026-11-15T01:00:00Z is open") {
		t.Errorf("%+v", a)
	}
	w.end()
	a := w.tell(Command{Verb: VerbTrigger})
	if a.Key != "s@2026-11-15T01:00:00Z-trigger-1" {
		t.Errorf("%+v", a)
	}
}

func TestBackfill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hourly(Skip))
	w.at("15T05:00")
	w.end()
	w.log = nil
	from, to := zero.Add(2*time.Hour), zero.Add(4*time.Hour)
	if a := w.tell(Command{Verb: VerbBackfill, From: from, To: to}); a.Ticks != 2 || a.Text != "" {
		t.Fatalf("%+v", a)
	}

	w.want("backfill 15T02:00")
	w.at("15T06:00") // the current tick is not lost, and comes before backfills
	w.want()
	w.end()
	w.want("tick 15T06:00")
	w.end()
	w.want("backfill 15T03:00")
	w.end()
	w.want()
	if len(w.status.Backfills) != 0 {
		t.Errorf("%+v", w.status.Backfills)
	}

	for _, c := range []struct {
		name     string
		from, to time.Time
		kind     fault.Kind
		text     string
	}{
		{"the wrong way round", to, from, fault.Invalid, "is not before"},
		{"empty", from, from, fault.Invalid, "is not before"},
		{"the future", from, w.now.Add(time.Hour), fault.Invalid, "is in the future"},
		{"too much", zero.AddDate(-1, 0, 0), to, fault.Invalid, "more than 1000"},
		{"no time", time.Time{}, to, fault.Invalid, "from"},
	} {
		if a := w.tell(Command{Verb: VerbBackfill, From: c.from, To: c.to}); a.Kind != c.kind.String() || !strings.Contains(a.Text, c.text) {
			t.Errorf("%s: %+v", c.name, a)
		}
	}

	w.tell(Command{Verb: VerbPause})
	for i := range MaxBackfills + 1 {
		a := w.tell(Command{Verb: VerbBackfill, From: from, To: to})
		if full := a.Kind == fault.Exhausted.String(); full != (i == MaxBackfills) {
			t.Errorf("backfill %d: %+v", i, a)
		}
	}
}

func TestBackfillTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hourly(Allow))
	w.tell(Command{Verb: VerbBackfill, From: zero.Add(-150 * time.Hour), To: zero})
	if len(w.log) != maxOpen {
		t.Errorf("%d begin", len(w.log))
	}
	w.end()
	if len(w.log) != 150 {
		t.Errorf("%d have begun", len(w.log))
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hourly(Skip))
	if a := w.tell(Command{Verb: VerbApply, Spec: hourly(Skip), Paused: true}); a.Change != Unchanged || w.status.Paused {
		t.Errorf("%+v, %+v", a, w.status)
	}
	// The tick of one o'clock is due, and the schedule has not decided about it yet.
	w.now = zero.Add(90 * time.Minute)
	other := hourly(Skip)
	other.Every, other.Phase = Duration(time.Hour), Duration(15*time.Minute)
	if a := w.tell(Command{Verb: VerbApply, Spec: other}); a.Change != Changed {
		t.Errorf("%+v", a)
	}
	w.want("tick 15T01:00") // the tick of the old definition; the new one starts at 02:15
	if want := zero.Add(2*time.Hour + 15*time.Minute); !w.status.Wake.Equal(want) {
		t.Errorf("wakes at %s, want %s", w.status.Wake, want)
	}
	w.end()

	// The new definition has another job and the same times. No tick is left out, and none begins
	// twice.
	w.now = zero.Add(2*time.Hour + 20*time.Minute)
	job := hourly(Skip)
	job.Phase, job.Job.Name = Duration(15*time.Minute), "other"
	w.tell(Command{Verb: VerbApply, Spec: job})
	w.want("tick 15T02:15")
	// The execution starts with the input of the other job.
	if f := w.status.Open[0]; f.Workflow != "other" || w.status.Recent[0] != f {
		t.Errorf("open %+v, recent %+v", f, w.status.Recent[0])
	}
	w.end()
	w.at("15T03:15")
	if w.want("tick 15T03:15"); w.status.Recent[0].Workflow != "other" {
		t.Errorf("%+v", w.status.Recent[0])
	}
	if a := w.tell(Command{Verb: VerbApply, Spec: &Spec{Cron: "x"}}); a.Kind != fault.Invalid.String() {
		t.Errorf("%+v", a)
	}
	w.tell(Command{Verb: VerbDelete})
	d := w.decide(Command{Verb: VerbDelete}, Command{Verb: VerbTrigger})
	if !d.Over || d.Answers[1].Kind != fault.NotFound.String() {
		t.Errorf("%+v", d)
	}
	if d, err := Decide(Situation{Name: "s", Now: zero, Commands: []Command{{Verb: VerbPause}, {Verb: "dance"}}}); err != nil || d.Answers[0].Kind != fault.NotFound.String() {
		t.Errorf("%+v, %v", d, err)
	}
}

// An execution that waits for its turn while the job changes belongs to the new job: it begins with
// the new input.
func TestApplyWhileOneWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hourly(Queue))
	w.at("15T01:00")
	w.at("15T02:00")
	task := hourly(Queue)
	task.Job = Job{Kind: KindTask, Name: "act", Task: &model.TaskSpec{Kind: "act", Queue: "q"}}
	w.tell(Command{Verb: VerbApply, Spec: task})
	if w.want("tick 15T01:00"); w.status.Open[0].Workflow != "report" {
		t.Errorf("what has begun is %+v", w.status.Open[0])
	}
	w.end()
	if w.want("tick 15T02:00"); w.status.Open[0].Workflow != task.Job.Type() {
		t.Errorf("what begins with the input of %s is %+v", task.Job.Type(), w.status.Open[0])
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	s := hourly(Skip)
	s.StartAt, s.EndAt = zero.Add(2*time.Hour), zero.Add(4*time.Hour)
	w := newWorld(t, s)
	for _, clock := range []string{"15T01:00", "15T02:00", "15T03:00", "15T04:00", "15T05:00"} {
		w.at(clock)
		w.end()
	}
	w.want("tick 15T02:00", "tick 15T03:00")
	if !w.status.Wake.IsZero() {
		t.Errorf("wakes at %s", w.status.Wake)
	}
	if got, err := s.Next(zero, 10); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestJitter(t *testing.T) {
	t.Parallel()
	s := hourly(Skip)
	// A tick is not late if only its jitter delays it.
	s.Jitter, s.CatchUp = Duration(10*time.Minute), Duration(MinCatchUp)
	w := newWorld(t, s)

	delays := map[time.Duration]bool{}
	for range 20 {
		tick, wake := w.status.Tick, w.status.Wake
		late := wake.Sub(tick)
		if late < 0 || late > 10*time.Minute {
			t.Fatalf("%s is delayed by %s", tick, late)
		}
		delays[late] = true
		w.now = wake.Add(-time.Millisecond)
		w.decide()
		if late > 0 && len(w.log) != 0 {
			t.Fatalf("%s: too early", w.log)
		}
		w.now = wake
		w.decide()
		w.want("tick " + tick.Format("02T15:04"))
		w.end()
	}

	if len(delays) < 10 {
		t.Errorf("%d different delays", len(delays))
	}
	w.counts(Counts{Fired: 20})

	// If the cadence changes, a tick of the old cadence that its jitter delays is not lost.
	tick := w.status.Tick
	w.now = tick
	other := hourly(Skip)
	other.Phase = Duration(30 * time.Minute)
	w.tell(Command{Verb: VerbApply, Spec: other})
	w.want("tick " + tick.Format("02T15:04"))
}

// TestEveryTickOnce plays schedules at random. In every case no tick begins twice, and every tick
// has begun, was skipped, was missed, or waits. Only one execution is open at a time, unless the
// policy allows more.
func TestEveryTickOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := rapid.SampledFrom([]Overlap{Skip, Queue, Allow, Cancel}).Draw(t, "overlap")
		s := hourly(o)
		s.Jitter = Duration(rapid.IntRange(0, 30).Draw(t, "jitter")) * Duration(time.Minute)
		w := &world{t: t, now: zero, keys: map[string]bool{}}
		w.tell(Command{Verb: VerbApply, Spec: s})
		from := w.status.Decided

		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "minutes")) * time.Minute)
				w.decide()
			case 2:
				w.end()
			case 3:
				w.tell(Command{Verb: VerbPause})
			case 4:
				w.tell(Command{Verb: VerbResume})
			case 5:
				w.tell(Command{Verb: VerbTrigger})
			}

			if st := &w.status; o != Allow && len(st.Open) > 1 {
				t.Fatalf("%d are open", len(st.Open))
			}
		}

		w.tell(Command{Verb: VerbResume})
		c, waits := w.status.Counts, int64(0)
		if w.status.Waiting != nil {
			waits++
		}
		all, _ := (&decider{spec: s, cadence: mustCadence(s)}).between(from, w.status.Decided, 100_000)
		asked := int64(len(all)) + c.Triggered
		if w.status.Waiting != nil && w.status.Waiting.Kind == ByTrigger {
			asked++
		}

		// If another trigger replaces a trigger, the replaced one is counted as skipped.
		if got := c.Fired + c.Skipped + c.Missed + waits; o == Cancel && got < asked || o != Cancel && got != asked {
			t.Fatalf("%d ticks and triggers, %+v and %d waiting make %d", asked, c, waits, got)
		}
	})
}

func mustCadence(s *Spec) cadence.Cadence {
	c, err := s.Cadence()
	if err != nil {
		panic(err)
	}
	return c
}

func taskJob(change func(t *model.TaskSpec)) Job {
	t := &model.TaskSpec{Kind: "work", Queue: "q"}
	change(t)
	return Job{Kind: KindTask, Name: "work", Task: t}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range MaxLabels + 1 {
		many[fmt.Sprint("l", i)] = "v"
	}

	for name, c := range map[string]struct {
		change func(s *Spec)
		text   string
	}{
		"cron and interval": {func(s *Spec) { s.Cron = "0 0 * * *" }, "not both"},
		"nothing":           {func(s *Spec) { s.Every = 0 }, "cron line"},
		"never":             {func(s *Spec) { s.Every, s.Cron = 0, "0 0 30 2 *" }, "never fires"},
		"zone":              {func(s *Spec) { s.Every, s.Cron, s.Zone = 0, "0 0 * * *", "Mars/Base" }, "zone"},
		"zone of interval":  {func(s *Spec) { s.Zone = "Mars/Base" }, "zone"},
		"too often":         {func(s *Spec) { s.Every = Duration(time.Millisecond) }, "too short"},
		"negative":          {func(s *Spec) { s.Every = -1 }, "positive"},
		"overlap":           {func(s *Spec) { s.Overlap = "maybe" }, "overlap"},
		"catch-up":          {func(s *Spec) { s.CatchUp = 1 }, "catch-up"},
		"long catch-up":     {func(s *Spec) { s.CatchUp = 1<<63 - 1 }, "catch-up"},
		"jitter":            {func(s *Spec) { s.Jitter = -1 }, "jitter"},
		"long jitter":       {func(s *Spec) { s.Jitter = 1<<63 - 1 }, "jitter"},
		"start":             {func(s *Spec) { s.StartAt = time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC) }, "start"},
		"end":               {func(s *Spec) { s.EndAt = time.Date(1812, 1, 1, 0, 0, 0, 0, time.UTC) }, "end"},
		"end before start":  {func(s *Spec) { s.StartAt, s.EndAt = zero, zero }, "not after its start"},
		"no workflow":       {func(s *Spec) { s.Job.Name = "" }, "not the name"},
		"ours":              {func(s *Spec) { s.Job.Name = Type }, "is ours"},
		"a slash":           {func(s *Spec) { s.Job.Name = "a/b" }, "not the name"},
		"kind":              {func(s *Spec) { s.Job.Kind = "dance" }, "kind"},
		"label":             {func(s *Spec) { s.Job.Labels = map[string]string{"a b": "c"} }, "label"},
		"our label":         {func(s *Spec) { s.Job.Labels = map[string]string{LabelTick: "c"} }, "perdure."},
		"labels":            {func(s *Spec) { s.Job.Labels = many }, "31 labels"},
		"app":               {func(s *Spec) { s.App = strings.Repeat("a", 300) }, "app"},
		"task delay":        {func(s *Spec) { s.Job = taskJob(func(t *model.TaskSpec) { t.Delay = -1 }) }, "its delay is -1ns"},
		"task time-out":     {func(s *Spec) { s.Job = taskJob(func(t *model.TaskSpec) { t.ToClose = 1<<63 - 1 }) }, "100 years"},
		"task heartbeat":    {func(s *Spec) { s.Job = taskJob(func(t *model.TaskSpec) { t.Silence = 1 }) }, "at least 100ms"},
		"task policy":       {func(s *Spec) { s.Job = taskJob(func(t *model.TaskSpec) { t.Retry.Coefficient = 1 }) }, "coefficient"},
		"no queue":          {func(s *Spec) { s.Job = taskJob(func(t *model.TaskSpec) { t.Queue = "" }) }, "needs a queue"},
		"input":             {func(s *Spec) { s.Job.Input.Data = make([]byte, MaxInput+1) }, "bytes"},
	} {
		s := hourly(Skip)
		c.change(s)
		if err := s.Define("s"); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "schedule s") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Histories may have such a definition, so the code of schedules still accepts it.
	old := hourly(Skip)
	old.Zone = "Mars/Base"
	if err := old.Complete("s"); err != nil {
		t.Errorf("an old definition: %v", err)
	}

	for _, name := range []string{"", strings.Repeat("n", 201), "a\nb", "\xff"} {
		if err := CheckName(name); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestPayloadsInJSON(t *testing.T) {
	t.Parallel()
	for _, p := range []model.Payload{
		{}, {Data: []byte(`{"a":1}`)}, {Data: []byte("perdure-blob:1:ab/cd:12:ef"), Encoding: "json+offload;sum=x"}, {Data: []byte{0xff, 0}, Encoding: "json+aes-gcm"}, {Data: []byte("x"), Encoding: "text"},
	} {
		s := Spec{Job: Job{Input: Payload{Payload: p}}}
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var again Spec
		if err := json.Unmarshal(data, &again); err != nil || !again.Job.Input.Equal(p) || again.Job.Input.Encoding != p.Encoding {
			t.Errorf("%s: %+v, %v", data, again, err)
		}
		if strings.HasPrefix(string(p.Data), "perdure-blob") && !strings.Contains(string(data), string(p.Data)) {
			t.Errorf("clean-up would not find the reference in %s", data)
		}
	}
}
