package service

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

const (
	// The owner accepts an order about a signal only while the code of the run waits for something.
	// signalPatience bounds how long the service repeats the order until then.
	signalPatience = 5 * time.Second
	// signalPause is the first pause before the service tries the order again.
	signalPause = 10 * time.Millisecond
)

// Signals asks the owner of an execution for the signals that its code has not taken, or to show,
// skip or drop one of them. To list or show signals of an execution that is closed or has no owner,
// Signals reads its history.
func (s *Service) Signals(ctx context.Context, r api.SignalsRequest) (model.Calls, error) {
	v := s.check("signals")
	v.Workflow(r.Target.Address, "signals")
	v.Reason(r.Reason)
	v.RequestID(r.RequestID)
	if r.Do != model.MailboxList {
		v.Text("the id of the signal", r.ID, s.limits.Name)
	}
	if err := v.Err(); err != nil {
		return model.Calls{}, err
	}
	m := &model.Message{Kind: model.MessageMailbox, To: r.Target.Address, ToRun: r.Target.Run, Name: r.Do, ID: r.ID}
	looks := r.Do == model.MailboxList || r.Do == model.MailboxShow
	if !looks {
		m.RequestID, m.Failure = r.RequestID, &model.Failure{Message: r.Reason}
	}
	a, err := s.aboutSignals(ctx, m, looks)
	if err != nil {
		return model.Calls{}, wayOut(err)
	}

	return model.DecodeCalls(a.Output)
}

// aboutSignals asks the owner of an execution, or reads the history if there is no owner to ask.
// The owner of a closed run does not keep its signals in memory.
func (s *Service) aboutSignals(ctx context.Context, m *model.Message, looks bool) (model.Answer, error) {
	if !looks {
		return s.whenItWaits(ctx, m)
	}
	row, err := s.execution(ctx, "signals", api.Target{Address: m.To, Run: m.ToRun})
	if err != nil {
		return model.Answer{}, err
	}
	owned, err := s.hasOwner(ctx, m.To)
	if err != nil {
		return model.Answer{}, err
	}
	if owned && !row.Outcome.Status.Closed() {
		return s.send(ctx, m)
	}

	h, err := s.readRun(ctx, "signals", row)
	if err != nil {
		return model.Answer{}, err
	}
	x, err := core.Recover(h.Start, h.Outcome, h.Events[len(h.Start.Carried):], nil)
	if err != nil {
		return model.Answer{}, fault.New(fault.Corrupt, "signals of %s: %w", m.To, err)
	}

	return x.LookAtSignals(m)
}

// whenItWaits sends an order about a signal, and repeats it until the code of the run waits for
// something, for at most signalPatience.
func (s *Service) whenItWaits(ctx context.Context, m *model.Message) (model.Answer, error) {
	end := time.Now().Add(signalPatience)
	for pause := signalPause; ; pause = min(2*pause, time.Second/2) {
		a, err := s.send(ctx, m)
		busy := a.Failure != nil && a.Failure.Type == model.FailureBusy
		if !busy || time.Now().Add(pause).After(end) {
			return a, err
		}

		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return a, err
		}
	}
}
