package replay_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// If the code never comes to an end, Check reports that and does not wait for it.
func TestCheckOfCodeThatBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		code := func(replay.Ctx, model.Payload) (model.Payload, error) {
			<-free
			return model.Payload{}, nil
		}
		h := newEngine(nil)
		go func() {
			time.Sleep(time.Minute)
			close(free)
		}()
		cfg := replay.Config{Code: map[string]replay.Code{"wf": code}, UnloadTimeout: 2 * time.Minute}
		err := replay.Check(t.Context(), cfg, &model.History{Start: h.start, Outcome: model.Outcome{Status: model.Running}})
		if !fault.Is(err, fault.Blocked) || !strings.Contains(err.Error(), "blocks outside durable calls") {
			t.Errorf("it says %v", err)
		}
	})
}

func TestCheckGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		code := func(replay.Ctx, model.Payload) (model.Payload, error) {
			<-free
			return model.Payload{}, nil
		}

		h := newEngine(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		go func() {
			<-ctx.Done()
			time.Sleep(time.Second)
			close(free)
		}()

		cfg := replay.Config{Code: map[string]replay.Code{"wf": code}, StuckAfter: time.Hour}
		err := replay.Check(ctx, cfg, &model.History{Start: h.start, Outcome: model.Outcome{Status: model.Running}})
		if !fault.Is(err, fault.Timeout) {
			t.Errorf("it says %v", err)
		}
	})
}

// A history may end where the code continues, or continue where the code ends.
func TestCheckNoticesAnotherEnd(t *testing.T) {
	t.Parallel()
	step := func(x replay.Ctx, name string) error {
		_, err := x.Step(&replay.Step{Name: name, Body: func(context.Context) (model.Payload, error) {
			t.Error("a body ran")
			return model.Payload{}, nil
		}})
		return err
	}

	two := func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
		if err := step(x, "one"); err != nil {
			return model.Payload{}, err
		}
		return payload("end"), step(x, "two")
	}

	recorded := func(names ...string) *model.History {
		h := &model.History{Start: newEngine(nil).start, Outcome: model.Outcome{Status: model.Completed, Output: payload("end")}}
		for i, n := range names {
			h.Events = append(h.Events, model.Event{Seq: int64(i + 1), At: h.Start.At, Kind: model.EventStepCompleted, ID: "/s3:" + n, Name: n})
		}
		return h
	}
	canceled := func(events ...model.Event) *model.History {
		h := &model.History{Start: newEngine(nil).start, Events: events}
		h.Start.Begins = h.Start.At + 1
		h.Outcome = model.Outcome{Status: model.Canceled, At: h.Start.Begins + 1}
		return h
	}
	request := model.Event{Seq: 1, At: newEngine(nil).start.At + 2, Kind: model.EventCancelRequest}
	for _, c := range []struct {
		name string
		h    *model.History
		want string
		at   int64 // the event that does not fit
	}{
		{"canceled after the start time, before the code began", canceled(), "", 0},
		{"canceled after the code began", canceled(request), "the recorded error is", 0},
		{"all of it", recorded("one", "two"), "", 0},
		{"less", recorded("one"), "ended as completed behind event 1; the code runs step two", 0},
		{"more", recorded("one", "two", "six"), "event 3 records step six, but the code returned without asking for it", 3},
		{"another", recorded("one", "six"), "event 2 records step six, which the code did not ask for; it asks for step two", 2},
		{"another result", func() *model.History { h := recorded("one", "two"); h.Outcome.Output = payload("x"); return h }(), "the recorded result is x; the code returns end", 0},
		{"another status", func() *model.History { h := recorded("one", "two"); h.Outcome.Status = model.Failed; return h }(), "ended as failed; the code ends as completed", 0},
	} {
		err := replay.Check(t.Context(), replay.Config{Code: map[string]replay.Code{"wf": two}}, c.h)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		var at int64
		if misfit, ok := errors.AsType[*replay.Misfit](err); ok {
			at = misfit.Event()
		}
		if at != c.at || err != nil && !fault.Is(err, fault.Blocked) {
			t.Errorf("%s: event %d of %v, want event %d", c.name, at, err, c.at)
		}
	}
}
