package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Check replays a whole history with today's code, without an engine and without running steps. It
// returns nil when the code fits the history. That means that the code asks for everything that is
// recorded. If the code of the recorded run ended the run, today's code must also end it in the
// same way. Otherwise Check returns an error of kind Blocked that says what was recorded and what
// the code did instead. If the problem is about one event, the error is a [Misfit].
func Check(ctx context.Context, cfg Config, h *model.History) error {
	v, err := conclude(ctx, cfg, h, nil)
	if err != nil {
		return err
	}
	return v.compare(h, cfg.Plain)
}

// Misfit says that the code does not fit an event of the history.
type Misfit struct {
	error

	event int64
}

// Event returns the position of the event.
func (m *Misfit) Event() int64 { return m.event }

// Unwrap returns an error of kind Blocked.
func (m *Misfit) Unwrap() error { return m.error }

// conclude replays a history up to its end, and returns what the code does there. If there is a
// query, the code answers it there.
func conclude(ctx context.Context, cfg Config, h *model.History, q *model.Query) (v verdict, err error) {
	name := h.Start.Address.Type
	if cfg.Code[name] == nil {
		return v, fault.New(fault.NotFound, "there is no code for workflow %s", name)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	w := NewWorker(cfg)
	w.draining.Store(true) // no body begins, and the worker releases a run that waits immediately
	c := &checker{w: w, run: h.Start.Run, query: q, verdict: make(chan verdict, 1)}
	w.Serve(c)
	w.Activate(&model.Activation{Start: &h.Start, Generation: firstGeneration, Events: h.Events, Now: lastTime(h)})

	select {
	case v = <-c.verdict:
	case <-ctx.Done():
		err = fault.New(fault.Timeout, "replay of %s: the code does not end: %w", name, context.Cause(ctx))
	}
	// If the code is stuck, its run does not end, but the verdict says more about that.
	if end := w.Close(context.WithoutCancel(ctx)); err == nil && v.blocked == nil && end != nil {
		err = end
	}
	return v, err
}

// lastTime returns the latest time in a history, by the owner's clock.
func lastTime(h *model.History) model.Time {
	now := max(h.Start.Awake(), h.Start.At)
	if n := len(h.Events); n > 0 {
		now = max(now, h.Events[n-1].At)
	}
	return now
}

// verdict is what the code did at the end of the history.
type verdict struct {
	blocked *model.Reason
	misfit  int64 // position of the event that blocked is about; 0 for none
	end     *model.Close
	asks    []model.Command
	waits   []model.Reason

	answer  model.Payload // the answer to the query, if there is one
	refused error         // why the code does not answer it
}

// compare returns how the code differs from the record.
func (v *verdict) compare(h *model.History, plain func(model.Payload) []byte) error {
	switch {
	case v.blocked != nil && v.misfit > 0:
		return &Misfit{fault.New(fault.Blocked, "%s", v.blocked), v.misfit}
	case v.blocked != nil:
		return fault.New(fault.Blocked, "%s", v.blocked)
	case !codeEnded(h):
		return nil // the run is open: even if the code ends here, its end may not be recorded yet
	case v.end == nil || v.wouldAddEvents():
		return fault.New(fault.Blocked, "the recorded run ended as %s behind event %d; the code %s", h.Outcome.Status, len(h.Events), v.describeAsks())
	}

	want, got := &h.Outcome, v.end
	status := want.Status
	if status == model.Continued && want.Failure != nil {
		status = model.Failed // the recorded run failed, and another attempt followed
	}

	switch {
	case got.Status != status:
		return fault.New(fault.Blocked, "the recorded run ended as %s; the code ends as %s%s", status, got.Status, because(got.Failure))
	case got.Status == model.Completed && !same(got.Output, want.Output, plain):
		return fault.New(fault.Blocked, "the recorded result is %s; the code returns %s", brief(want.Output), brief(got.Output))
	case message(got.Failure) != message(want.Failure):
		return fault.New(fault.Blocked, "the recorded error is %q; the code returns %q", message(want.Failure), message(got.Failure))
	}

	return nil
}

// same reports whether a result equals the recorded one. The stored form may differ each time, for
// example when it is encrypted, so it compares plain values.
func same(got, want model.Payload, plain func(model.Payload) []byte) bool {
	if plain == nil || got.Encoding == want.Encoding {
		return got.Equal(want)
	}
	is, was := plain(got), plain(want)
	return is != nil && was != nil && bytes.Equal(is, was)
}

// codeEnded reports whether the code ended the run. Other possible ends are a reset, a time-out,
// and a termination by a client.
func codeEnded(h *model.History) bool {
	o := &h.Outcome
	switch o.Status {
	case model.Completed:
		return true
	case model.Canceled:
		return h.Start.Begins == 0 || hasBegun(h)
	case model.Failed:
		return !o.TimedOut()
	case model.Continued:
		return o.Failure == nil || o.Failure.Kind != model.FailureReset
	default:
		return false
	}
}

// hasBegun reports whether the code of a delayed run began before the run was canceled. If it did,
// the history has the cancel request, or something that the code asked for. A cancel request that
// ends the run before its code begins leaves no event. The times do not show the difference: the
// timer of the start time may be late, so such a request may come after the start time.
func hasBegun(h *model.History) bool {
	return slices.ContainsFunc(h.Events, func(e model.Event) bool { return e.Kind == model.EventCancelRequest || e.ID != "" })
}

// wouldAddEvents reports whether the code asks for something that would add events to the history.
// If the code does, it differs from the recorded code, whose requests are all in the history.
func (v *verdict) wouldAddEvents() bool {
	return slices.ContainsFunc(v.asks, func(c model.Command) bool {
		return c.Kind != model.CommandStartTimer && c.Kind != model.CommandStopTimer
	})
}

// describeAsks describes what the code asks for instead of an end.
func (v *verdict) describeAsks() string {
	var texts []string
	for i := range v.asks {
		e := &v.asks[i].Event
		if e.Kind != 0 {
			texts = append(texts, "asks for "+e.Kind.String()+" "+e.Name+at(e.Position))
		}
	}
	for _, r := range v.waits {
		texts = append(texts, r.String())
	}
	if len(texts) == 0 {
		return "asks for a step that is not recorded"
	}
	return strings.Join(texts, ", ")
}

func because(f *model.Failure) string {
	if f == nil {
		return ""
	}
	return ": " + f.Message
}

func message(f *model.Failure) string {
	if f == nil {
		return ""
	}
	return f.Message
}

func brief(p model.Payload) string {
	const most = 200
	if p.Encoding != model.JSON || len(p.Data) > most {
		return fmt.Sprintf("%d bytes", len(p.Data))
	}
	return string(p.Data)
}

// checker is a session that receives what the code does at the end of a history, and stores
// nothing.
type checker struct {
	w       *Worker
	run     model.RunID
	query   *model.Query // nil without a query
	verdict chan verdict

	mu   sync.Mutex
	told bool
}

// tell sends the first verdict, with the answer to the query. It drops later verdicts.
func (c *checker) tell(v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told {
		return
	}
	c.told = true
	if r := c.w.findRun(c.run, firstGeneration); r != nil {
		// The goroutine that reports holds the baton, or has just given it up, so no code runs.
		switch {
		case v.blocked != nil:
			v.misfit = r.m.misfit
		case c.query != nil:
			v.answer, v.refused = r.m.answerQuery(c.query)
		}
	}
	c.verdict <- v
}

// firstGeneration is the generation of the only activation of a replay.
const firstGeneration = 1

// Report receives a turn. The checker does not answer its requests, so the code cannot continue,
// and the first turn is the verdict.
func (c *checker) Report(_ context.Context, t model.Turn) error {
	if t.Blocked == nil && t.Close == nil && len(t.Commands) == 0 && len(t.Waits) == 0 {
		return nil
	}
	if len(t.Waits) > 0 && t.Waits[0].Code == model.WaitStuck {
		t.Blocked = &t.Waits[0]
	}
	c.tell(verdict{blocked: t.Blocked, end: t.Close, asks: t.Commands, waits: t.Waits})
	if t.Close == nil && t.Blocked == nil {
		return errChecked
	}
	return nil
}

// errChecked makes the worker drop the run, because the checker answers no requests.
var errChecked = errors.New("the history has been replayed")

// Release receives the waits of the code. The worker calls it when the code waits for something
// from outside, or for a step.
func (c *checker) Release(_ model.RunID, _ uint64, _ int64, waits []model.Reason) {
	c.tell(verdict{waits: waits})
}

// Answer does nothing. The worker never calls it, because the checker sends no query to the worker.
//
//arch:parameters the signature of api.Session
func (c *checker) Answer(model.RunID, uint64, uint64, model.Payload, *model.Failure) {}

// Leave does nothing, because the checker has nothing to wait for.
func (c *checker) Leave(context.Context) error { return nil }
