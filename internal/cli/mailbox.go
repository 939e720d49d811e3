package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// callLine is a call that waits for an entity, in JSON.
type callLine struct {
	ID        string `json:"id"`
	Position  int    `json:"position,omitempty"`
	Kind      string `json:"kind"`
	Operation string `json:"operation,omitempty"`
	Since     string `json:"since"`
	Bytes     int    `json:"bytes"`
	From      string `json:"from,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	OneWay    bool   `json:"one_way,omitempty"`
	Stored    bool   `json:"stored"`
	Running   bool   `json:"running"`
	Input     any    `json:"input,omitempty"`
}

func callLineOf(c *model.Call) callLine {
	l := callLine{
		ID: c.ID, Position: c.Position, Kind: c.Kind, Operation: c.Operation, Since: c.At.String(), Bytes: c.Bytes,
		RequestID: c.RequestID, OneWay: c.OneWay, Stored: c.Stored, Running: c.Running,
	}
	if !c.From.Address.IsZero() {
		l.From = nameOf(c.From.Address)
	}

	return l
}

// caller describes the caller for people.
func (l *callLine) caller() string {
	switch {
	case l.From != "":
		return l.From
	case l.RequestID != "" && !strings.HasPrefix(l.RequestID, model.DrawnIDs): // an id that a person has given
		return "client, request " + l.RequestID
	}

	return "client"
}

// state describes the state of the call for people.
func (l *callLine) state() string {
	switch {
	case l.Running:
		return "runs"
	case !l.Stored:
		return "waits, in memory"
	}

	return "waits"
}

func newEntityMailbox(o *options) *cobra.Command {
	var timeout time.Duration
	var limit int
	cmd := &cobra.Command{
		Use: "mailbox entity/key", Short: "List the calls that wait for an entity, and show, skip or drop one", Args: cobra.ExactArgs(1),
		Long: `List the calls that wait for an entity or a service, in the order of their execution: id, operation, age, size and caller.

The owner of the entity answers, so the list includes calls that wait only in its memory. If no process owns the entity, the list has the stored calls. skip
moves one call to the end. drop removes one call, and its caller gets an error that says so. A running call can be neither skipped nor dropped.`,
		Example: `  perdure entity mailbox account/42
  perdure entity mailbox show account/42 7-3f9a0c41d2e7
  perdure entity mailbox skip account/42 7-3f9a0c41d2e7
  perdure entity mailbox drop account/42 7-3f9a0c41d2e7`,
		ValidArgsFunction: o.entityNames(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.mailbox(cmd.Context(), timeout, mailboxOrder{name: args[0], do: model.MailboxList, limit: limit}, o.printCalls)
		},
	}
	entityPatience(cmd, &timeout)
	cmd.Flags().Var(count(&limit, model.MailboxListed), "limit", "most calls to list; 0 lists all")
	cmd.AddCommand(
		o.mailboxVerb(model.MailboxShow, "Show one waiting call with its input", o.printCall),
		o.mailboxVerb(model.MailboxSkip, "Move one waiting call to the end; its id changes", o.printChanged("moved call %s of %s to the end; its new id is %s\n")),
		o.mailboxVerb(model.MailboxDrop, "Remove one waiting call; its caller gets an error that says so", o.printChanged("dropped call %s of %s\n")),
	)

	return cmd
}

// mailboxVerb makes a command that does something to one call.
func (o *options) mailboxVerb(do, short string, done func(a model.Address, id string, c *model.Calls) error) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: do + " entity/key id", Short: short, Args: cobra.ExactArgs(2),
		Example:           fmt.Sprintf("  perdure entity mailbox %s account/42 7-3f9a0c41d2e7", do),
		ValidArgsFunction: o.entityNames(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.mailbox(cmd.Context(), timeout, mailboxOrder{name: args[0], do: do, id: args[1]}, done)
		},
	}
	entityPatience(cmd, &timeout)

	return cmd
}

// mailboxOrder says what to do with the mailbox of an entity, or with one call in it.
type mailboxOrder struct {
	name, do, id string
	limit        int // the maximum number of calls to list; 0 for all
}

// mailbox sends a request to the owner of an entity and prints the answer with done.
func (o *options) mailbox(ctx context.Context, timeout time.Duration, r mailboxOrder, done func(a model.Address, id string, c *model.Calls) error) error {
	a, err := o.entityAddress(r.name)
	if err != nil {
		return err
	}

	return o.within(ctx, timeout, func(ctx context.Context, b api.Backend) error {
		c, err := b.Mailbox(ctx, api.MailboxRequest{Address: a, Do: r.do, ID: r.id, Limit: r.limit})
		if err != nil {
			return err
		}

		// A list comes in pages.
		for c.Cursor != "" && (r.limit == 0 || len(c.Calls) < r.limit) {
			page, err := b.Mailbox(ctx, api.MailboxRequest{Address: a, Do: r.do, Cursor: c.Cursor, Limit: max(r.limit-len(c.Calls), 0)})
			if err != nil {
				return err
			}
			c.Calls, c.Total, c.Cursor = append(c.Calls, page.Calls...), page.Total, page.Cursor
		}

		return done(a, r.id, &c)
	})
}

// printCalls prints a mailbox.
func (o *options) printCalls(_ model.Address, _ string, c *model.Calls) error {
	lines, rows := make([]callLine, len(c.Calls)), make([][]string, len(c.Calls))
	for i := range c.Calls {
		l := callLineOf(&c.Calls[i])
		what := l.Operation
		if l.Kind == model.MessageLock.String() {
			what = "(lock)"
		}
		lines[i] = l
		rows[i] = []string{strconv.Itoa(l.Position), l.ID, what, stamp(c.Calls[i].At), strconv.Itoa(l.Bytes), l.caller(), l.state()}
	}
	return o.printWaiting(c, lines, "#\tID\tOPERATION\tSINCE\tBYTES\tCALLER\tSTATE", rows)
}

// printWaiting prints a list of calls or signals that wait, in JSON or as a table, and says how
// many of them the list does not show.
func (o *options) printWaiting(c *model.Calls, lines any, head string, rows [][]string) error {
	if o.structured() {
		return o.json(lines)
	}
	if err := o.table(head, rows); err != nil {
		return err
	}
	if n := c.Total - len(c.Calls); n > 0 {
		fmt.Fprintf(o.Err, "%d more are not listed; the list has the first %d.\n", n, len(c.Calls))
	}

	return nil
}

// printCall prints one call with its input.
func (o *options) printCall(a model.Address, _ string, c *model.Calls) error {
	if len(c.Calls) == 0 {
		return nil
	}
	found := &c.Calls[0]
	l := callLineOf(found)
	l.Input = raw(found.Input)
	if o.structured() {
		return o.json(l)
	}

	return o.table("", [][]string{
		{"Entity", nameOf(a)},
		{"Call", l.ID},
		{"Position", strconv.Itoa(l.Position)},
		{"Operation", l.Operation},
		{"Since", stamp(found.At)},
		{"Caller", l.caller()},
		{"State", l.state()},
		{"Input", payload(found.Input, 2000)},
	})
}

// printChanged returns a function that prints the result of skip or drop.
func (o *options) printChanged(format string) func(model.Address, string, *model.Calls) error {
	return func(a model.Address, id string, c *model.Calls) error {
		if o.structured() && len(c.Calls) > 0 {
			return o.json(callLineOf(&c.Calls[0]))
		}
		args := []any{id, nameOf(a)}
		if len(c.Calls) > 0 && c.Calls[0].Position > 0 {
			args = append(args, c.Calls[0].ID)
		}
		_, err := fmt.Fprintf(o.Out, format, args...)
		return err
	}
}
