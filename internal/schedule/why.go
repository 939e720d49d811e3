package schedule

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// trouble finds out why a schedule makes no progress although its ticks are due: its own execution
// makes no progress, or no live process has the code of its job.
func (s *Seen) trouble(ctx context.Context, b api.Client, d *api.Description) error {
	if len(d.Reasons) > 0 {
		if r := d.Reasons[0]; r.Code.Strands() || r.Code == model.WaitPaused || r.Code == model.WaitRetry {
			s.Trouble = r.String()
			return nil
		}
	}
	if s.Status.Paused {
		return nil // it starts nothing
	}
	why, err := b.Missing(ctx, model.Address{Tenant: d.Start.Address.Tenant, Type: s.Spec.Job.Type(), Key: s.Name}, s.Spec.Job.Task)
	if err == nil && why != nil {
		s.Trouble = "its job " + why.String()
	}
	return err
}

// Why lists what keeps a schedule from starting its job now, apart from the clock. It asks b what
// an open execution waits for.
func (s *Seen) Why(ctx context.Context, b api.Client) (lines []string, err error) {
	if s.Status.Paused {
		text := "the schedule is paused"
		if s.Status.Why != "" {
			text += ": " + s.Status.Why
		}
		lines = append(lines, text)
	}
	if s.Trouble != "" {
		lines = append(lines, "the schedule cannot continue: "+s.Trouble)
	}
	if len(s.Status.Open) == 0 || s.Spec.Overlap == Allow {
		return lines, nil
	}

	open := s.Status.Open[0]
	name := open.Workflow + "/" + open.Key
	lines = append(lines, "it starts nothing while "+name+" is open (overlap "+string(s.Spec.Overlap)+")")
	d, err := b.Describe(ctx, api.Target{Address: model.Address{Tenant: s.Tenant, Type: open.Workflow, Key: open.Key}})
	if fault.Is(err, fault.NotFound) {
		return lines, nil
	}
	if err != nil {
		return lines, err
	}
	if len(d.Reasons) > 0 {
		lines = append(lines, name+" "+d.Reasons[0].String())
	}
	for _, l := range d.Chain {
		lines = append(lines, l.String())
	}
	return lines, nil
}
