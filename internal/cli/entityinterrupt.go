package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func newEntityInterrupt(o *options) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "interrupt entity/key [id]", Short: "Interrupt the running call of an entity or a service", Args: cobra.RangeArgs(1, 2),
		Long: `Interrupt the running call of an entity or a service. The context of its code ends, and its caller gets an error that says so. If the code does not return
within a second, the worker abandons it. An operation has changed nothing then, and the next call runs. perdure entity mailbox prints the ids of running calls;
without an id the command interrupts whichever call runs, and for a service all of them. It does not wait for the end of the call. Views are not interrupted.`,
		Example: `  perdure entity interrupt account/42
  perdure entity interrupt service:gateway/eu 7-3f9a0c41d2e7`,
		ValidArgsFunction: o.entityNames(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := mailboxOrder{name: args[0], do: model.MailboxInterrupt}
			if len(args) > 1 {
				r.id = args[1]
			}
			return o.mailbox(cmd.Context(), timeout, r, o.printInterrupted)
		},
	}
	entityPatience(cmd, &timeout)

	return cmd
}

// printInterrupted prints the calls that an interrupt may have reached. A worker gets several calls
// of an entity in one hand-over and runs them one after the other, so only one of them is running.
func (o *options) printInterrupted(a model.Address, _ string, c *model.Calls) error {
	if o.structured() {
		lines := make([]callLine, len(c.Calls))
		for i := range c.Calls {
			lines[i] = callLineOf(&c.Calls[i])
		}
		return o.json(lines)
	}
	if len(c.Calls) == 0 {
		return nil
	}
	more := ""
	if n := len(c.Calls) - 1; n > 0 {
		more = fmt.Sprintf(", or one of %d calls that its worker has too", n)
	}
	_, err := fmt.Fprintf(o.Out, "asked the worker of %s to interrupt %s%s\n", nameOf(a), c.Calls[0].Operation, more)
	return err
}

// recordLine is an operation in the log of an entity, in JSON.
type recordLine struct {
	Operation string `json:"operation"`
	At        string `json:"at"`
	From      string `json:"from,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Error     string `json:"error,omitempty"`
	ErrorKind string `json:"error_kind,omitempty"`
	Bytes     int    `json:"bytes"`
	Input     any    `json:"input,omitempty"`
}

func recordLineOf(r *model.OperationRecord) recordLine {
	l := recordLine{Operation: r.Name, At: r.At.String(), RequestID: r.RequestID, Bytes: r.Bytes, Input: raw(r.Input)}
	if !r.From.Address.IsZero() {
		l.From = nameOf(r.From.Address)
	}
	if f := r.Failure; f != nil {
		l.Error, l.ErrorKind = f.Message, f.Kind
	}
	return l
}

func newEntityLog(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "log entity/key", Short: "List the last operations of an entity that keeps them", Args: cobra.ExactArgs(1),
		Long: `List the last operations of an entity, oldest first: name, time, caller, size of the input and error. The code of the entity says whether the engine keeps them,
how many, and whether with their inputs.`,
		Example:           "  perdure entity log account/42\n  perdure entity log account/42 -o json",
		ValidArgsFunction: o.entityNames(false),
		RunE:              o.withEntity(o.printLog),
	}
}

// printLog prints the log of an entity.
func (o *options) printLog(info *api.EntityInfo) error {
	n := &info.Entity
	if n.Version == 0 {
		return fault.New(fault.NotFound, "entity %s does not exist", nameOf(n.Address))
	}
	lines, rows := make([]recordLine, len(n.Log)), make([][]string, len(n.Log))
	for i := range n.Log {
		r := &n.Log[i]
		l := recordLineOf(r)
		caller := callLine{From: l.From, RequestID: l.RequestID}
		lines[i] = l
		rows[i] = []string{stamp(r.At), l.Operation, caller.caller(), strconv.Itoa(l.Bytes), dash(payload(r.Input, 200)), dash(l.Error)}
	}
	if o.structured() {
		return o.json(lines)
	}
	return o.table("AT\tOPERATION\tCALLER\tBYTES\tINPUT\tERROR", rows)
}
