package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// signalLine is an unread signal of an execution, in JSON.
type signalLine struct {
	ID        string `json:"id"`
	Position  int    `json:"position,omitempty"`
	Name      string `json:"name"`
	Since     string `json:"since"`
	Bytes     int    `json:"bytes"`
	RequestID string `json:"request_id,omitempty"`
	Value     any    `json:"value,omitempty"`
}

func signalLineOf(c *model.Call) signalLine {
	return signalLine{ID: c.ID, Position: c.Position, Name: c.Operation, Since: c.At.String(), Bytes: c.Bytes, RequestID: c.RequestID}
}

// signalsOrder contains the flags of the signals commands.
type signalsOrder struct {
	run, reason, requestID string
	timeout                time.Duration
}

func (r *signalsOrder) flags(cmd *cobra.Command, acts bool) {
	cmd.Flags().StringVar(&r.run, "run", "", "id of a run; the current run by default")
	if acts {
		cmd.Flags().StringVar(&r.reason, "reason", "", "reason for the history of the execution")
		cmd.Flags().StringVar(&r.requestID, "request-id", "", "id that makes the request safe to repeat: a repetition gets the same answer")
	}
	patience(cmd, &r.timeout)
}

func newWorkflowSignals(o *options) *cobra.Command {
	var r signalsOrder
	cmd := &cobra.Command{
		Use: "signals workflow/key", Short: "List the unread signals of an execution, and show, skip or drop one", Args: cobra.ExactArgs(1),
		Long: `List the signals that the code of an execution has not received, oldest first: id, name, time and size.

The code receives the signals of one name in this order. skip moves one signal behind the others of its name, as if it had just arrived. drop removes one signal, and
the code never receives it. Both wait a few seconds until the code waits for something. If the code is still running then, it may be about to receive the signal,
and the command fails. Pause the execution first.`,
		Example: `  perdure workflow signals order/42
  perdure workflow signals show order/42 7-3f9a0c41d2e7
  perdure workflow signals skip order/42 7-3f9a0c41d2e7
  perdure workflow signals drop order/42 7-3f9a0c41d2e7 --reason 'sent twice'
  perdure workflow signals drop order/42 --name approved --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withSignals(cmd.Context(), &r, args[0], func(ctx context.Context, b api.Backend, t api.Target) error {
				c, err := b.Signals(ctx, api.SignalsRequest{Target: t, Do: model.MailboxList})
				if err != nil {
					return err
				}
				return o.printSignals(&c)
			})
		},
	}
	r.flags(cmd, false)
	cmd.AddCommand(newSignalsShow(o), newSignalsSkip(o), newSignalsDrop(o))

	return cmd
}

// withSignals finds the execution with the given name and calls do.
func (o *options) withSignals(ctx context.Context, r *signalsOrder, name string, do func(ctx context.Context, b api.Backend, t api.Target) error) error {
	named, err := o.target(name, r.run)
	if err != nil {
		return err
	}

	return o.with(ctx, false, func(b api.Backend) error {
		b = patient{b, r.timeout}
		t, err := named.find(ctx, b)
		if err != nil {
			return err
		}
		return do(ctx, b, t)
	})
}

func newSignalsShow(o *options) *cobra.Command {
	var r signalsOrder
	cmd := &cobra.Command{
		Use: "show workflow/key id", Short: "Show one unread signal with its value", Args: cobra.ExactArgs(2),
		Example: "  perdure workflow signals show order/42 7-3f9a0c41d2e7",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withSignals(cmd.Context(), &r, args[0], func(ctx context.Context, b api.Backend, t api.Target) error {
				c, err := b.Signals(ctx, api.SignalsRequest{Target: t, Do: model.MailboxShow, ID: args[1]})
				if err != nil || len(c.Calls) == 0 {
					return err
				}
				return o.printSignal(t.Address, &c.Calls[0])
			})
		},
	}
	r.flags(cmd, false)

	return cmd
}

func newSignalsSkip(o *options) *cobra.Command {
	var r signalsOrder
	cmd := &cobra.Command{
		Use: "skip workflow/key id", Short: "Move one signal behind the others of its name; its id changes", Args: cobra.ExactArgs(2),
		Example: "  perdure workflow signals skip order/42 7-3f9a0c41d2e7",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withSignals(cmd.Context(), &r, args[0], func(ctx context.Context, b api.Backend, t api.Target) error {
				c, err := b.Signals(ctx, r.request(t, model.MailboxSkip, args[1]))
				if err != nil || len(c.Calls) == 0 {
					return err
				}
				l := signalLineOf(&c.Calls[0])
				if o.structured() {
					return o.json(l)
				}
				_, err = fmt.Fprintf(o.Out, "moved signal %s of %s behind the others of its name; its new id is %s\n", args[1], nameOf(t.Address), l.ID)
				return err
			})
		},
	}
	r.flags(cmd, true)

	return cmd
}

func (r *signalsOrder) request(t api.Target, do, id string) api.SignalsRequest {
	return api.SignalsRequest{Target: t, Do: do, ID: id, Reason: r.reason, RequestID: r.requestID}
}

func newSignalsDrop(o *options) *cobra.Command {
	var r signalsOrder
	var name string
	var yes bool
	cmd := &cobra.Command{
		Use: "drop workflow/key [id]", Short: "Remove one signal, or all of one name; the code never receives it", Args: cobra.RangeArgs(1, 2),
		Example: `  perdure workflow signals drop order/42 7-3f9a0c41d2e7 --reason 'sent twice'
  perdure workflow signals drop order/42 --name approved --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch one := len(args) == 2; {
			case one == (name != ""):
				return fault.New(fault.Invalid, "drop needs either the id of one signal, or --name for all signals of one name")
			case !one && !yes:
				return fault.New(fault.Invalid, "this drops every signal %q of %s: add --yes to confirm", name, args[0])
			case !one && r.requestID != "":
				return fault.New(fault.Invalid, "--request-id needs the id of one signal; --name drops several")
			}

			return o.withSignals(cmd.Context(), &r, args[0], func(ctx context.Context, b api.Backend, t api.Target) error {
				if name != "" {
					return o.dropSignals(ctx, b, &r, t, name)
				}
				return o.dropSignal(ctx, b, &r, t, args[1])
			})
		},
	}
	r.flags(cmd, true)
	cmd.Flags().StringVar(&name, "name", "", "drop every signal of this name")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --name: confirm the change")

	return cmd
}

// dropSignal drops one signal.
func (o *options) dropSignal(ctx context.Context, b api.Backend, r *signalsOrder, t api.Target, id string) error {
	c, err := b.Signals(ctx, r.request(t, model.MailboxDrop, id))
	if err != nil {
		return err
	}
	lines := []signalLine{}
	for i := range c.Calls {
		lines = append(lines, signalLineOf(&c.Calls[i]))
		o.printDropped(t, &lines[i])
	}
	if o.structured() {
		return o.json(lines)
	}

	return nil
}

// dropSignals drops the signals of a name. It prints each signal that it has dropped. At the end it
// prints how many it dropped, even if it could not drop all of them.
func (o *options) dropSignals(ctx context.Context, b api.Backend, r *signalsOrder, t api.Target, name string) error {
	lines := []signalLine{}
	failed := batch.DropSignals(ctx, b.Signals, api.SignalsRequest{Target: t, ID: name, Reason: r.reason}, func(c *model.Call) {
		lines = append(lines, signalLineOf(c))
		o.printDropped(t, &lines[len(lines)-1])
	})
	if o.structured() {
		return errors.Join(failed, o.json(lines))
	}

	text := fmt.Sprintf("dropped %d signals %s of %s", len(lines), name, nameOf(t.Address))
	switch {
	case failed != nil:
		text += "; others may be left"
	case len(lines) == 0:
		text = nameOf(t.Address) + " has no unread signal of this name"
	}
	_, err := fmt.Fprintln(o.Out, text)

	return errors.Join(failed, err)
}

// printDropped prints a dropped signal.
func (o *options) printDropped(t api.Target, l *signalLine) {
	if !o.structured() {
		fmt.Fprintf(o.Out, "dropped signal %s %s of %s\n", l.Name, l.ID, nameOf(t.Address))
	}
}

// printSignals prints unread signals.
func (o *options) printSignals(c *model.Calls) error {
	lines, rows := make([]signalLine, len(c.Calls)), make([][]string, len(c.Calls))
	for i := range c.Calls {
		l := signalLineOf(&c.Calls[i])
		lines[i] = l
		rows[i] = []string{strconv.Itoa(l.Position), l.ID, l.Name, stamp(c.Calls[i].At), strconv.Itoa(l.Bytes), l.RequestID}
	}
	return o.printWaiting(c, lines, "#\tID\tNAME\tSINCE\tBYTES\tREQUEST", rows)
}

// printSignal prints one unread signal with its value.
func (o *options) printSignal(a model.Address, c *model.Call) error {
	l := signalLineOf(c)
	l.Value = raw(c.Input)
	if o.structured() {
		return o.json(l)
	}

	return o.table("", [][]string{
		{"Execution", nameOf(a)},
		{"Signal", l.ID},
		{"Name", l.Name},
		{"Position", strconv.Itoa(l.Position)},
		{"Since", stamp(c.At)},
		{"Request", l.RequestID},
		{"Value", payload(c.Input, 2000)},
	})
}
