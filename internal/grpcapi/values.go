package grpcapi

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// valueOverhead is by how many bytes a value in a turn may be above the limit of payloads. The SDK
// holds values to the limit before it compresses or encrypts them, and the stored form may be a bit
// larger (see codec.MaxStored).
const valueOverhead = 1 << 10

// refusal is a turn that the server did not take.
type refusal struct {
	generation uint64
	why        error
}

// tooLarge returns which value of a turn is above the limit of payloads, or nil if there is none.
// The SDK finds such values itself: the step fails with this error. Another program may not.
func (w *Work) tooLarge(t *model.Turn) error {
	most := w.cfg.MaxPayload + valueOverhead
	check := func(what, of string, p model.Payload) error {
		if n := p.Size(); n > most {
			return fault.New(fault.Invalid, "%s of %.200q has %d bytes, at most %d are allowed: send a smaller value, or report that the step failed", what, of, n, w.cfg.MaxPayload)
		}
		return nil
	}

	for i := range t.Commands {
		c := &t.Commands[i]
		if err := check("the input", c.Event.Name, c.Event.Input); err != nil {
			return err
		}
		if err := check("the output", c.Event.Name, c.Event.Output); err != nil {
			return err
		}
		if c.Message == nil {
			continue
		}
		if err := check("the value", c.Message.Name, c.Message.Input); err != nil {
			return err
		}
		for j := range c.Message.With {
			if err := check("the value", c.Message.With[j].Name, c.Message.With[j].Input); err != nil {
				return err
			}
		}
	}
	if t.Close == nil {
		return nil
	}
	if err := check("the output", "the execution", t.Close.Output); err != nil {
		return err
	}
	return check("the input", "the next run", t.Close.Input)
}

// refuse returns what the engine gets instead of a turn that the server does not take: the worker
// cannot continue the run. The engine then gives the run to another worker, whose program may not
// have the fault. If there is none, the run waits with the reason for a worker that joins. The
// worker gets the error when the engine has taken the run back, as the only answer to its turn.
func (r *workflowRole) refuse(t *model.Turn, why error) model.Turn {
	r.mu.Lock()
	r.refused[t.Run] = refusal{t.Generation, why}
	r.mu.Unlock()
	reason := model.Reason{Code: model.WaitPoison, Detail: "the worker reports a turn that this server does not take: " + why.Error()}
	return model.Turn{Run: t.Run, Generation: t.Generation, Seen: t.Seen, Blocked: &reason}
}

// tellRefused tells the worker that the server did not take its last turn of a run. It returns
// false if the server took that turn.
func (r *workflowRole) tellRefused(run model.RunID, generation uint64) bool {
	r.mu.Lock()
	f, ok := r.refused[run]
	if ok = ok && f.generation == generation; ok {
		delete(r.refused, run)
	}
	r.mu.Unlock()
	if ok {
		r.s.post(&pb.ServerItem{Item: &pb.ServerItem_TurnRefused{TurnRefused: &pb.TurnRefused{Run: wire.Run(run), Generation: generation, Error: errorDetail(f.why)}}})
	}
	return ok
}
