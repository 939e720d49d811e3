package perdure_test

import (
	"context"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type (
	text     = *perdure.Activity[string, string]
	payments struct {
		Charge text
		Refund text
		Paid   *perdure.Signal[string]
		secret string // its methods need it
		Prefix string
		App    *perdure.App // not a handle, so it may be nil
	}
	stock struct{ Reserve text }
	// purchases is a workflow with its dependencies as fields: its own activities, and groups that
	// other workflows share.
	purchases struct {
		*payments
		Stock *stock
		Mail  struct{ Send text }
		Orders,
		Returns *perdure.Workflow[string, string]
		Next *purchases // may form a cycle
	}
)

func newPayments() *payments {
	p := &payments{secret: "s", Paid: perdure.NewSignal[string]("paid")}
	p.Charge = perdure.NewActivity("charge", p.charge)
	p.Refund = perdure.NewActivity("refund", noop)
	return p
}

func (p *payments) charge(_ context.Context, in string) (string, error) { return p.secret + in, nil }

func newPurchases(p *payments) *purchases {
	w := &purchases{payments: p, Stock: &stock{perdure.NewActivity("reserve", noop)}, Returns: perdure.DeclareWorkflow[string, string]("returns")}
	w.Mail.Send = perdure.NewActivity("send", noop)
	w.Orders = perdure.NewWorkflow("orders", w.execute) // a method value
	w.Next = w
	return w
}

// execute calls the activities of its groups, and refers to itself.
func (w *purchases) execute(ctx perdure.WorkflowCtx, in string) (string, error) {
	if in == "" {
		return w.Charge.Run(ctx, "!")
	}
	if _, err := w.Stock.Reserve.Run(ctx, in); err != nil {
		return "", err
	}
	if _, err := w.Mail.Send.Run(ctx, in); err != nil {
		return "", err
	}
	return w.Orders.Run(ctx, in[1:])
}

func TestGroups(t *testing.T) {
	t.Parallel()
	w := newPurchases(newPayments())
	other := newPurchases(w.payments) // uses the same group
	other.Orders = perdure.NewWorkflow("other-orders", other.execute)
	other.Stock, other.Mail = w.Stock, w.Mail
	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		got, err := w.Orders.Run(c, "abc", perdure.RawKey("k"))
		want(t, got, err, "s!")
	}, perdure.GroupOf(w), perdure.GroupOf(other))
}

type streams struct{ Tail *perdure.Stream[int, string] }

func tail(_ context.Context, lines []string, n int, send func(string) error) error {
	for _, line := range lines[max(len(lines)-n, 0):] {
		if err := send(line); err != nil {
			return err
		}
	}
	return nil
}

// A group with a stream defines the entity of the stream.
func TestStreamInGroup(t *testing.T) {
	t.Parallel()
	logs := perdure.NewEntity[[]string]("log")
	add := perdure.NewOperation(logs, "add", func(_ perdure.EntityCtx, lines *[]string, line string) (int, error) {
		*lines = append(*lines, line)
		return len(*lines), nil
	})
	group := &streams{perdure.NewStream(logs, "tail", tail)}
	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		for _, line := range []string{"one", "two", "three"} {
			if _, err := add.Call(c, "k", line); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for line, err := range group.Tail.Read(c, "k", 2) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, line)
		}
		want(t, strings.Join(got, ","), nil, "two,three")
	}, perdure.GroupOf(group))
}

func TestMistakesInGroups(t *testing.T) {
	t.Parallel()
	declared := perdure.DeclareActivity[string, string]("declared")
	whole := newPayments()
	for _, c := range []struct {
		name string
		defs []perdure.Definition
		want []string // the whole error
	}{
		{"nil group", []perdure.Definition{perdure.GroupOf[payments](nil)}, []string{"group payments is nil ("}},
		{"nil fields", []perdure.Definition{perdure.GroupOf(&payments{Charge: perdure.NewActivity("charge", noop)})}, []string{
			"group payments: field Refund is nil (", "group payments: field Paid is nil (",
		}},
		{"nil fields inside", []perdure.Definition{perdure.GroupOf(&purchases{payments: &payments{Charge: whole.Charge, Paid: whole.Paid}})}, []string{
			"group purchases: field payments.Refund is nil (", "group purchases: field Stock is nil (", "group purchases: field Mail.Send is nil (",
			"group purchases: field Orders is nil (", "group purchases: field Returns is nil (", "group purchases: field Next is nil (",
		}},
		{"declared activity", []perdure.Definition{perdure.GroupOf(&stock{declared})}, []string{
			"group stock: field Reserve: activity declared is declared but has no code: pass its Bind(fn) (",
		}},
		{"declared activity that is bound", []perdure.Definition{perdure.GroupOf(&stock{declared}), declared.Bind(noop)}, nil},
		{"declared activity that is used", []perdure.Definition{perdure.NewWorkflow("w", nothing, perdure.Uses(perdure.GroupOf(&stock{declared})))}, []string{
			"workflow w uses activity declared, which has no code here",
		}},
		{"nil field that is used", []perdure.Definition{perdure.NewWorkflow("w", nothing, perdure.Uses(perdure.GroupOf(&stock{})))}, []string{
			"group stock: field Reserve is nil (",
		}},
		{"used and passed", []perdure.Definition{
			perdure.NewWorkflow("w", nothing, perdure.Uses(perdure.GroupOf(whole))), perdure.GroupOf(whole), whole.Charge,
		}, nil},
		{"two groups of a kind", []perdure.Definition{perdure.GroupOf(whole), perdure.GroupOf(newPayments())}, []string{
			"two definitions of activity charge (", "two definitions of activity refund (",
		}},
		{"nil definition", []perdure.Definition{perdure.GroupOf(&struct{ More perdure.Definition }{})}, []string{"field More is nil ("}},
		{"nil stream", []perdure.Definition{perdure.GroupOf(&streams{})}, []string{"group streams: field Tail is nil ("}},
		{"declared stream", []perdure.Definition{perdure.GroupOf(&streams{perdure.DeclareStream[int, string]("log", "tail")})}, nil},
		{"stream without an entity", []perdure.Definition{perdure.GroupOf(&streams{perdure.NewStream(nil, "tail", tail)})}, []string{
			"group streams: field Tail: ",
		}},
		{"group in a field", []perdure.Definition{perdure.GroupOf(&struct{ More perdure.Group }{perdure.Group{whole.Charge}}), perdure.GroupOf(&struct{ None perdure.Group }{})}, nil},
		{"no group", []perdure.Definition{perdure.GroupOf(&struct{ Name string }{})}, []string{"group struct { Name string } has no exported field that is a handle"}},
		{"no struct", []perdure.Definition{perdure.GroupOf(new(int))}, []string{"group int has no exported field that is a handle"}},
		{"a mistake in a field", []perdure.Definition{perdure.GroupOf(&stock{perdure.NewActivity("", noop)})}, []string{"the name of activity is empty"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := openDefinitions(t, c.defs)
			if len(c.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}

			if err == nil {
				t.Fatal("no mistake is found")
			}

			for _, text := range c.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error %q does not say %q", err, text)
				}
			}

			if mistakes := max(strings.Count(err.Error(), "\n"), 1); mistakes != len(c.want) {
				t.Errorf("error %q says something else than %q", err, c.want)
			}
		})
	}
}

// openDefinitions opens definitions and returns their mistakes.
func openDefinitions(t *testing.T, defs []perdure.Definition) error {
	t.Helper()
	app, err := embedded.Open(t.Context(), "memory:", defs...)
	if err != nil {
		return err
	}
	return app.Close()
}
