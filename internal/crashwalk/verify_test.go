package crashwalk_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
)

// history is a run as the store has it.
type history struct {
	row    store.Execution
	events []model.Event // including the events that the run began with
}

// histories are all runs of a world.
type histories struct {
	runs  []*history                   // oldest first
	chain map[model.Address][]*history // the runs of each address, as inSuccession orders them
}

func allShards() []model.ShardID {
	ids := make([]model.ShardID, shards)
	for i := range ids {
		ids[i] = model.ShardID(i)
	}
	return ids
}

// read reads all runs directly from the memory store.
func (w *world) read() (*histories, error) {
	ctx := context.Background()
	page, err := w.mem.List(ctx, store.Query{Tenant: model.DefaultTenant, AllRuns: true, Limit: 1000})
	if err != nil {
		return nil, err
	}
	slices.Reverse(page.Executions)

	h := &histories{chain: map[model.Address][]*history{}}
	for _, row := range page.Executions {
		r := &history{row: row, events: slices.Clone(row.Start.Carried)}
		stored, err := w.mem.LoadEvents(ctx, store.RunKey{Shard: row.Shard, Run: row.Start.Run}, int64(len(r.events)), math.MaxInt32, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		r.events = append(r.events, stored...)
		if err := w.reveal(r); err != nil {
			return nil, err
		}
		h.runs = append(h.runs, r)
		h.chain[row.Start.Address] = append(h.chain[row.Start.Address], r)
	}

	for a, runs := range h.chain {
		if h.chain[a], err = inSuccession(runs); err != nil {
			return h, err
		}
	}

	return h, nil
}

// inSuccession orders the runs of an address by the time of their start. But a run always comes
// after its previous run, and the current run comes last. inSuccession returns an error unless
// exactly one run is current.
func inSuccession(runs []*history) ([]*history, error) {
	current := slices.DeleteFunc(slices.Clone(runs), func(r *history) bool { return !r.row.Current })
	if len(current) != 1 {
		return runs, wrong("%d runs of %s are current", len(current), runs[0].row.Start.Address)
	}

	slices.SortStableFunc(runs, func(x, y *history) int {
		switch {
		case x == y:
			return 0
		case x == current[0] || x.row.Start.Previous == y.row.Start.Run:
			return 1
		case y == current[0] || y.row.Start.Previous == x.row.Start.Run:
			return -1
		}
		return int(x.row.Start.At - y.row.Start.At)
	})

	return runs, nil
}

func addressOf(r perdure.Ref) model.Address {
	return model.Address{Tenant: model.DefaultTenant, Type: r.Workflow, Key: r.Key}
}

// of returns the runs of an execution, in order.
func (h *histories) of(r perdure.Ref) []*history { return h.chain[addressOf(r)] }

// last returns the last run of an execution, or nil.
func (h *histories) last(r perdure.Ref) *history {
	if runs := h.of(r); len(runs) > 0 {
		return runs[len(runs)-1]
	}
	return nil
}

// count counts events of a kind over all runs of an execution. If name is not empty, it counts only
// events with this name.
func (h *histories) count(r perdure.Ref, k model.EventKind, name string) int {
	n := 0
	for _, run := range h.of(r) {
		n += run.count(k, name)
	}
	return n
}

func (r *history) count(k model.EventKind, name string) int {
	n := 0
	for i := range r.events {
		if r.events[i].Kind == k && (name == "" || r.events[i].Name == name) {
			n++
		}
	}
	return n
}

// hasReceived reports whether the execution has received a signal with that id.
func (h *histories) hasReceived(r perdure.Ref, id string) bool {
	return slices.ContainsFunc(h.of(r), func(run *history) bool {
		return slices.ContainsFunc(run.events, func(e model.Event) bool {
			return e.Kind == model.EventSignalReceived && e.RequestID == id
		})
	})
}

// String formats all histories for a failure message.
func (h *histories) String() string {
	var b strings.Builder
	for _, r := range h.runs {
		s, o := &r.row.Start, &r.row.Outcome
		fmt.Fprintf(&b, "  %s/%s on shard %d, %s: %s", s.Address.Type, s.Address.Key, r.row.Shard, s.Run, o.Status)
		switch {
		case o.Failure != nil:
			fmt.Fprintf(&b, " (%s %s)", o.Failure.Kind, o.Failure.Message)
		case o.Status.Closed():
			fmt.Fprintf(&b, " %s", o.Output.Data)
		}

		if !o.Status.Closed() {
			fmt.Fprintf(&b, " parked=%v waits=%v blocked=%v", r.row.Parked, r.row.Waits, r.row.Blocked)
		}
		b.WriteByte('\n')

		for i := range r.events {
			e := &r.events[i]
			fmt.Fprintf(&b, "    %3d %s %-16s %s %s", e.Seq, e.At.Std().Format("15:04:05.000"), e.Kind, e.ID, e.Name)
			if e.RequestID != "" {
				fmt.Fprintf(&b, " request=%s", e.RequestID)
			}
			if e.Failure != nil {
				fmt.Fprintf(&b, " %s", e.Failure.Message)
			}
			b.WriteByte('\n')
		}
	}

	return b.String()
}

// isMeantOpen reports whether an execution stays open on purpose.
func (st *stage) isMeantOpen(a model.Address) bool { return slices.Contains(st.open, a.Type+"/"+a.Key) }

// restless returns an error as long as there is something left to do: an open execution that is not
// meant to stay open, a message, a request in an inbox, a waiting call or lock of an entity.
func (w *world) restless() error {
	ctx := context.Background()
	page, err := w.mem.List(ctx, store.Query{Tenant: model.DefaultTenant, Statuses: []model.Status{model.Running}, Limit: 1000})
	if err != nil {
		return err
	}

	for _, row := range page.Executions {
		if a := row.Start.Address; !w.current.isMeantOpen(a) {
			return fmt.Errorf("execution %s/%s is open (parked=%v, waits=%v, blocked=%v)", a.Type, a.Key, row.Parked, row.Waits, row.Blocked)
		}
	}

	messages, _, err := w.mem.LoadMessages(ctx, allShards(), 10, 1<<30)
	if err != nil {
		return err
	}
	if len(messages) > 0 {
		return fmt.Errorf("messages are on their way, the first one is a %s to %s", messages[0].Message.Kind, messages[0].Message.To)
	}

	inbox, _, err := w.mem.LoadInbox(ctx, allShards(), math.MaxInt64, 10, 1<<30)
	if err != nil {
		return err
	}
	if len(inbox) > 0 {
		return fmt.Errorf("requests wait in the inbox, the first one is a %s to %s", inbox[0].Message.Kind, inbox[0].Message.To)
	}

	return w.restlessEntities()
}

// verify checks what must hold after every run of the scenario. plain has the facts of the run
// without a fault, which this run must have too. If plain is nil, verify does not compare facts.
func (w *world) verify(plain []string) (*histories, error) {
	h, err := w.read()
	if err != nil {
		return h, err
	}
	var errs []error
	if err := w.restless(); err != nil {
		errs = append(errs, fmt.Errorf("stuck: %w", err))
	}

	for _, r := range h.runs {
		if err := r.verify(); err != nil {
			errs = append(errs, fmt.Errorf("history of %s/%s: %w", r.row.Start.Address.Type, r.row.Start.Address.Key, err))
		}
	}

	for _, runs := range h.chain {
		errs = append(errs, verifyChain(runs))
	}

	errs = append(errs, w.verifyTimers(h), w.verifyBodies(), w.verifyNodes())
	for _, a := range w.acks {
		if err := a.holds(h); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", a.what, err))
		}
	}

	if plain != nil && !w.s.loose {
		errs = append(errs, compare(plain, h.facts(w.s.ignore...)))
	}
	if w.s.check != nil {
		errs = append(errs, w.s.check(w, h))
	}

	return h, errors.Join(errs...)
}

// once records things that must be unique, each with the number of the place where it was seen. The
// number is the position of an event, or the index of a run in its chain.
type once map[string]int64

func (o once) see(seq int64, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if first, twice := o[what]; twice {
		return wrong("%s is recorded twice, at %d and at %d", what, first, seq)
	}
	o[what] = seq
	return nil
}

// verify checks a single run: positions have no gap, times do not go back, and nothing that must be
// unique occurs twice.
func (r *history) verify() error {
	seen, received, started, failures := once{}, map[int64]string{}, map[string]bool{}, map[string]int{}
	last, paused := r.row.Start.Zero(), false
	for i := range r.events {
		e := &r.events[i]
		if e.Seq != int64(i)+1 {
			return wrong("event %d stands where %d belongs", e.Seq, i+1)
		}
		if e.At < last {
			return wrong("event %d is older than the one before it", e.Seq)
		}

		last = e.At
		var err error
		switch e.Kind {
		case model.EventStepCompleted, model.EventStepFailed:
			err = seen.see(e.Seq, "the outcome of step %s", e.ID)
			if want := failures[e.ID] + 1; err == nil && e.Attempt != want {
				err = wrong("step %s ended with attempt %d, want %d", e.ID, e.Attempt, want)
			}
		case model.EventAttemptFailed:
			if failures[e.ID]++; e.Attempt != failures[e.ID] {
				err = wrong("attempt %d of step %s is recorded as %d", failures[e.ID], e.ID, e.Attempt)
			}
		case model.EventTimerFired:
			if err = seen.see(e.Seq, "timer %s", e.ID); err == nil && e.At < e.Due {
				err = wrong("timer %s fired before it was due", e.ID)
			}
		case model.EventWithdrawn:
			err = seen.see(e.Seq, "the withdrawal of %s", e.ID)
		case model.EventSignalReceived:
			received[e.Seq] = e.Name
			if e.RequestID != "" {
				err = seen.see(e.Seq, "signal %s", e.RequestID)
			}
		case model.EventSignalTaken:
			if name, ok := received[e.Ref]; !ok || name != e.Name {
				err = wrong("event %d takes signal %s of position %d, but that position has no such signal", e.Seq, e.Name, e.Ref)
			} else {
				err = errors.Join(seen.see(e.Seq, "the taking of the signal at %d", e.Ref), seen.see(e.Seq, "the taking with the id %s", e.ID))
			}
		case model.EventPromiseSettled:
			err = seen.see(e.Seq, "promise %s", e.Name)
		case model.EventChildStarted:
			started[e.ID] = true
			err = seen.see(e.Seq, "the start of child %s", e.ID)
		case model.EventChildClosed:
			if err = seen.see(e.Seq, "the end of child %s", e.ID); err == nil && !started[e.ID] {
				err = wrong("child %s ended and was never started", e.ID)
			}
		case model.EventSent:
			started[e.ID] = true
			err = seen.see(e.Seq, "message %s", e.ID)
		case model.EventAnswered:
			if err = seen.see(e.Seq, "the answer to message %s", e.ID); err == nil && !started[e.ID] {
				err = wrong("message %s was answered and never sent", e.ID)
			}
		case model.EventVersionMarked:
			err = seen.see(e.Seq, "the version of %s", e.Name)
		case model.EventLabeled:
			err = seen.see(e.Seq, "label %s", e.ID)
		case model.EventCancelRequest:
			err = seen.see(e.Seq, "the cancel request")
		case model.EventWatched:
			if !e.Blank() {
				err = seen.see(e.Seq, "watcher %v", e.Waiter())
			}
		case model.EventStateSet:
			if e.ID != "" {
				err = seen.see(e.Seq, "the change of a state with the id %s", e.ID)
			}
		case model.EventUpdateReceived:
			received[e.Seq] = "update " + e.Name
			if e.RequestID != "" {
				err = seen.see(e.Seq, "update %s", e.RequestID)
			}
		case model.EventUpdateAnswered:
			if name, ok := received[e.Ref]; !ok || name != "update "+e.Name {
				err = wrong("event %d answers update %s of position %d, but that position has no such update", e.Seq, e.Name, e.Ref)
			} else {
				err = seen.see(e.Seq, "the answer to the update at %d", e.Ref)
			}
		case model.EventPinned:
			err = seen.see(e.Seq, "the pin")
		case model.EventPaused, model.EventResumed:
			if paused == (e.Kind == model.EventPaused) {
				err = wrong("event %d (%s) does not change the state of the run", e.Seq, e.Kind)
			}
			paused = !paused
		case model.EventTaskScheduled:
			err = seen.see(e.Seq, "the scheduling of %s", e.ID)
		case model.EventLockAsked:
			err = seen.see(e.Seq, "the beginning of section %s", e.ID)
		case model.EventLockGranted:
			err = seen.see(e.Seq, "the lock of section %s on %s", e.ID, e.Target)
		case model.EventUnlocked:
			err = seen.see(e.Seq, "the end of section %s", e.Section)
		case model.EventTaskClaimed, model.EventTaskReturned, model.EventTaskTimedOut:
			// A task may have several of these events. tasksEnd checks that it has one claim at a
			// time.
		default:
			err = wrong("event %d has the unexpected kind %s", e.Seq, e.Kind)
		}

		if err != nil {
			return err
		}
	}

	if o := &r.row.Outcome; o.Status.Closed() && o.At < last {
		return wrong("the run ended before its last event")
	}
	return nil
}

// verifyChain checks the runs of an address, in order: each run follows the previous run, no client
// request starts two runs, and the code takes each signal only once in all runs.
func verifyChain(runs []*history) error {
	taken, began := once{}, once{}
	for i, r := range runs {
		s, o := &r.row.Start, &r.row.Outcome
		if i < len(runs)-1 && !o.Status.Closed() {
			return wrong("run %d of %d of %s is open", i+1, len(runs), s.Address)
		}
		if (o.Status == model.Continued) == o.Next.IsZero() {
			return wrong("run %s has status %s, but its next run is %s", s.Run, o.Status, o.Next)
		}

		if o.Status == model.Continued && (i == len(runs)-1 || runs[i+1].row.Start.Run != o.Next || runs[i+1].row.Start.Previous != s.Run) {
			return wrong("run %s continues as %s, which does not follow it", s.Run, o.Next)
		}

		if o.Status == model.Continued {
			if err := verifyCarried(r, runs[i+1]); err != nil {
				return err
			}
		}

		if s.RequestID != "" && s.Previous.IsZero() {
			if err := began.see(int64(i), "the run that request %s began", s.RequestID); err != nil {
				return err
			}
		}

		if !s.Source.IsZero() {
			taken = once{} // the run starts with a past, which repeats the signals taken before
		}

		for _, e := range r.events {
			if e.Kind != model.EventSignalTaken {
				continue
			}
			if id := r.events[e.Ref-1].RequestID; id != "" {
				if err := taken.see(int64(i), "the taking of signal %s", id); err != nil {
					return err
				}
			}
		}
	}

	return nil
}

// verifyCarried checks the signals that the run "to" gets from the previous run "from": exactly the
// signals that the code of "from" has not taken, in order. If a reset started "to", it gets all
// signals of "from".
func verifyCarried(from, to *history) error {
	text := func(e *model.Event) string { return e.Name + " " + e.RequestID + " " + string(e.Input.Data) }
	var left, carried []string
	for i := range from.events {
		e := &from.events[i]
		if e.Kind == model.EventSignalReceived && (!to.row.Start.Source.IsZero() || !slices.ContainsFunc(from.events, func(t model.Event) bool {
			return t.Kind == model.EventSignalTaken && t.Ref == e.Seq
		})) {
			left = append(left, text(e))
		}
	}

	for i := range to.row.Start.Carried {
		if e := &to.row.Start.Carried[i]; e.Kind == model.EventSignalReceived {
			carried = append(carried, text(e))
		}
	}

	if !slices.Equal(left, carried) {
		return wrong("run %s leaves the signals %q, but the next run starts with %q", from.row.Start.Run, left, carried)
	}
	return nil
}

// verifyTimers checks that no timer of a closed run is left.
func (w *world) verifyTimers(h *histories) error {
	timers, err := w.mem.LoadTimers(context.Background(), allShards(), store.TimerMark{}, math.MaxInt64, 100)
	if err != nil {
		return err
	}
	for _, t := range timers {
		for _, r := range h.runs {
			if r.row.Start.Run == t.Run && r.row.Outcome.Status.Closed() {
				return wrong("timer %s of %s is left, although its run has ended", t.ID, t.Address)
			}
		}
	}
	return nil
}

// verifyBodies checks how often the body of each step has run. It must have run as often as the
// scenario says. If a process has crashed or was fenced, every process may have run it that often.
// If the fault can make the store refuse or lose outcomes, there is no maximum.
func (w *world) verifyBodies() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	crashed := w.strike.kind != nil && w.strike.kind.crash && w.strike.hasHappened()

	// After an outage that is longer than a lease, the first process that reaches the store again
	// fences the others. Work that the others have not committed is then repeated. When a shard
	// moves without a crash, no work is repeated.
	outlived := w.strike.kind != nil && w.strike.kind.span > 0 && w.strike.hasHappened() && w.current.processes > 1
	for name, want := range w.s.bodies {
		got, most := w.bodies[name], want
		if crashed || outlived {
			most *= w.opened
		}
		if k := w.strike.kind; k != nil && (k.refuses || k.restarts) {
			most = math.MaxInt // an attempt whose outcome is refused or lost is repeated
		}
		if got < want || got > most {
			return wrong("body %s ran %d times, want %d (%d processes)", name, got, want, w.opened)
		}
	}

	for name := range w.bodies {
		if _, known := w.s.bodies[name]; !known && !slices.Contains(w.s.maybe, name) {
			return wrong("body %s ran, which the scenario does not expect", name)
		}
	}

	return nil
}

// verifyNodes checks that all nodes have deregistered and own no shards. If lostLease is true,
// shards may still have an owner. goodbyesLost says how many nodes may still be registered.
func (w *world) verifyNodes() error {
	v, err := w.mem.Members(context.Background())
	if err != nil {
		return err
	}
	for _, o := range v.Owners {
		if !o.Node.IsZero() && !w.lostLease() {
			return wrong("shard %d belongs to %s after all nodes have left", o.Shard, o.Node)
		}
	}
	if most := w.goodbyesLost(); len(v.Members) > most {
		return wrong("%d nodes are registered after all nodes have left, want at most %d", len(v.Members), most)
	}
	return nil
}

// hasRefused reports whether a commit was refused.
func (w *world) hasRefused() bool {
	return w.strike.kind != nil && w.strike.kind.refuses && w.strike.hasHappened()
}

// lostLease reports whether a node may have ended without releasing its shards: it died, or its
// calls to the store failed for a while.
func (w *world) lostLease() bool {
	k := w.strike.kind
	return k != nil && w.strike.hasHappened() && (k.crash || k.span > 0)
}

// goodbyesLost returns how many nodes may still be registered at the end: nodes that could not
// deregister, nodes that got no reply to their registration, and nodes that died. A dead node stays
// registered until another node fences it. If no other node has to wait for its shards, all other
// nodes may leave before that.
func (w *world) goodbyesLost() int {
	lost := w.lostLease()
	w.strike.mu.Lock()
	defer w.strike.mu.Unlock()
	switch {
	case !w.strike.hit:
		return 0
	case w.strike.kind.span > 0:
		return math.MaxInt
	case lost && w.strike.then > 0:
		return 2
	case lost || w.strike.met == faultstore.Register || w.strike.met == faultstore.Unregister:
		return 1
	}
	return 0
}

// facts returns the histories as sorted lines. It leaves out events of the kinds in ignore, and the
// parts that differ each time the scenario runs: times, ids that are drawn at random, and the keys
// that are derived from them.
func (h *histories) facts(ignore ...model.EventKind) []string {
	var lines []string
	for a, runs := range h.chain {
		for i, r := range runs {
			at := fmt.Sprintf("%s run %d", label(a), i+1)
			o := &r.row.Outcome
			lines = append(lines, fmt.Sprintf("%s: %s %s%s", at, o.Status, o.Output.Data, failureText(o.Failure)))
			for i := range r.events {
				e := &r.events[i]
				if slices.Contains(ignore, e.Kind) {
					continue
				}
				name := e.Name
				if e.Kind == model.EventSignalTaken {
					name += " " + string(r.events[e.Ref-1].Input.Data)
				}
				output := string(e.Output.Data)
				if uuid.MatchString(output) {
					output = "a UUID" // drawn from the seed of the run
				}
				request := e.RequestID
				if strings.HasPrefix(request, "run_") {
					request = "drawn" // by the engine
				}
				lines = append(lines, fmt.Sprintf("%s: %s %s %s %d %s %s%s %s %s", at, e.Kind, e.ID, name, e.Attempt, request, output,
					failureText(e.Failure), label(e.Target), label(e.Waiter().Address)))
			}
		}
	}

	slices.Sort(lines)
	return lines
}

var uuid = regexp.MustCompile(`^"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"$`)

func label(a model.Address) string {
	switch {
	case a.Type == "":
		return ""
	case len(a.Key) == 32: // derived from the run of the parent
		return a.Type + "/*"
	}
	return a.Type + "/" + a.Key
}

func failureText(f *model.Failure) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf(" (%s %s)", f.Kind, f.Message)
}

// compare returns an error with the missing and the additional facts.
func compare(want, got []string) error {
	var errs []error
	for i, j := 0, 0; i < len(want) || j < len(got); {
		switch {
		case j == len(got) || i < len(want) && want[i] < got[j]:
			errs = append(errs, wrong("missing: %s", want[i]))
			i++
		case i == len(want) || got[j] < want[i]:
			errs = append(errs, wrong("additional: %s", got[j]))
			j++
		default:
			i, j = i+1, j+1
		}
	}
	return errors.Join(errs...)
}
