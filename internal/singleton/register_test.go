package singleton_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/singleton"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	at := func(text string) singleton.Position {
		return singleton.Position{Payload: model.Payload{Data: []byte(text)}}
	}

	held := singleton.State{Epoch: 3, Beat: 7, Holder: "a", Process: "p", Lease: time.Second, Saved: 2, Position: at("5")}
	for _, c := range []struct {
		name string
		was  singleton.State
		c    singleton.Command
		want singleton.Answer
	}{
		{
			"first claim",
			singleton.State{},
			singleton.Command{Verb: singleton.VerbClaim, Candidate: "b", Process: "q", Lease: time.Second},
			singleton.Answer{Granted: true, State: singleton.State{Epoch: 1, Holder: "b", Process: "q", Lease: time.Second}},
		},
		{
			"takeover keeps the position", held,
			singleton.Command{Verb: singleton.VerbClaim, Candidate: "b", Epoch: 3, Beat: 7, Lease: time.Minute},
			singleton.Answer{Granted: true, State: singleton.State{Epoch: 4, Holder: "b", Lease: time.Minute, Position: at("5")}},
		},
		{"claim after a renewal", held, singleton.Command{Verb: singleton.VerbClaim, Candidate: "b", Epoch: 3, Beat: 6}, singleton.Answer{State: held}},
		{"claim after another claim", held, singleton.Command{Verb: singleton.VerbClaim, Candidate: "b", Epoch: 2, Beat: 7}, singleton.Answer{State: held}},
		{"renewal of an old epoch", held, singleton.Command{Verb: singleton.VerbRenew, Candidate: "a", Epoch: 2}, singleton.Answer{State: held}},
		{"renewal of another candidate", held, singleton.Command{Verb: singleton.VerbRenew, Candidate: "b", Epoch: 3}, singleton.Answer{State: held}},
		{"save of an old epoch", held, singleton.Command{Verb: singleton.VerbSave, Candidate: "a", Epoch: 2, Saved: 9, Position: at("9")}, singleton.Answer{State: held}},
		{"release of an old epoch", held, singleton.Command{Verb: singleton.VerbRelease, Candidate: "a", Epoch: 2}, singleton.Answer{State: held}},
		{"unknown verb", held, singleton.Command{Verb: "seize", Candidate: "a", Epoch: 3}, singleton.Answer{State: held}},
		{"renewal", held, singleton.Command{Verb: singleton.VerbRenew, Candidate: "a", Epoch: 3}, singleton.Answer{Granted: true, State: change(held, func(s *singleton.State) { s.Beat = 8 })}},
		{
			"save", held,
			singleton.Command{Verb: singleton.VerbSave, Candidate: "a", Epoch: 3, Saved: 3, Position: at("6")},
			singleton.Answer{Granted: true, State: change(held, func(s *singleton.State) { s.Beat, s.Saved, s.Position = 8, 3, at("6") })},
		},
		{
			"late save does not undo a later one", held,
			singleton.Command{Verb: singleton.VerbSave, Candidate: "a", Epoch: 3, Saved: 1, Position: at("4")},
			singleton.Answer{Granted: true, State: change(held, func(s *singleton.State) { s.Beat = 8 })},
		},
		{
			"release", held,
			singleton.Command{Verb: singleton.VerbRelease, Candidate: "a", Epoch: 3},
			singleton.Answer{Granted: true, State: change(held, func(s *singleton.State) { s.Beat, s.Holder, s.Process = 8, "", "" })},
		},
	} {
		if diff := cmp.Diff(c.want, singleton.Decide(c.was, &c.c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func change(s singleton.State, f func(*singleton.State)) singleton.State {
	f(&s)
	return s
}
