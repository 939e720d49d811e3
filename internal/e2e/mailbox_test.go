package e2e_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// An operator lists the calls that wait for an entity, moves one to the end and drops two. The
// limit of the mailbox applies to waiting calls and not to the running call. On PostgreSQL the
// operator is another process.
func TestOperatorManagesAMailbox(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		began, goOn := make(chan string, 10), make(chan struct{})
		gates := perdure.NewEntity[string]("gate", perdure.MailboxSize(3), perdure.OperationTimeout(time.Hour))
		enter := perdure.NewOperation(gates, "enter", func(_ perdure.EntityCtx, state *string, who string) (string, error) {
			began <- who
			<-goOn
			*state = strings.TrimSpace(*state + " " + who)
			return *state, nil
		})
		visit := perdure.NewWorkflow("visit", func(ctx perdure.WorkflowCtx, who string) (string, error) {
			if _, err := enter.Call(ctx, "north", who); !errors.Is(err, perdure.ErrDropped) {
				return "", err
			}
			return who + " was dropped", nil
		})
		app := s.open(gates, visit)
		operator := app
		if s.kind == "postgres" {
			operator = s.open()
		}
		c, ctx, ref := caller(t, app), t.Context(), gates.Ref("north")

		// mailbox waits until n calls are there.
		mailbox := func(n int) []perdure.MailboxCall {
			t.Helper()
			for end, next := time.Now().Add(patience), backoff(); ; next() {
				var calls []perdure.MailboxCall
				for call, err := range operator.Mailboxes().List(ctx, ref) {
					if err != nil {
						t.Fatal(err)
					}
					calls = append(calls, call)
				}
				if len(calls) == n {
					return calls
				}
				if time.Now().After(end) {
					t.Fatalf("%d calls: %+v; want %d", len(calls), calls, n)
				}
			}
		}
		type result struct {
			out string
			err error
		}
		results := map[string]chan result{}
		call := func(who string, n int) perdure.MailboxCall {
			t.Helper()
			done := make(chan result, 1)
			results[who] = done
			go func() {
				out, err := enter.Call(c, "north", who)
				done <- result{out, err}
			}()
			return mailbox(n)[n-1]
		}

		first := call("ann", 1)
		if got := <-began; got != "ann" {
			t.Fatalf("%s enters", got)
		}
		bob, cid := call("bob", 2), call("cid", 3)
		x := mustStart(t, c, visit, "dan")
		dan := mailbox(4)[3]
		if _, err := enter.Call(c, "north", "eve"); !errors.Is(err, perdure.ErrExhausted) || !strings.Contains(err.Error(), "3 calls") {
			t.Errorf("a fourth call that would wait: %v", err)
		}

		if all := mailbox(4); !all[0].Running || all[1].Running || all[3].From.Workflow != "visit" || !all[3].Stored || all[2].Operation != "enter" || all[2].Position != 3 {
			t.Errorf("the mailbox has %+v", all)
		}
		if shown, err := operator.Mailboxes().Describe(ctx, ref, bob.ID); err != nil || string(shown.Input) != `"bob"` {
			t.Errorf("%+v, %v", shown, err)
		}
		for _, do := range []func(id string) error{
			func(id string) error { return operator.Mailboxes().Drop(ctx, ref, id) },
			func(id string) error { _, err := operator.Mailboxes().Skip(ctx, ref, id); return err },
		} {
			if err := do(mailbox(4)[0].ID); !errors.Is(err, perdure.ErrConflict) {
				t.Errorf("a call that runs: %v", err)
			}
			if err := do("7-00"); !errors.Is(err, perdure.ErrNotFound) {
				t.Errorf("a call that is not there: %v", err)
			}
		}
		skipped, err := operator.Mailboxes().Skip(ctx, ref, bob.ID)
		if err != nil || skipped.Position != 4 {
			t.Errorf("%+v, %v", skipped, err)
		}
		if err := errors.Join(operator.Mailboxes().Drop(ctx, ref, cid.ID), operator.Mailboxes().Drop(ctx, ref, dan.ID)); err != nil {
			t.Fatal(err)
		}
		if r := <-results["cid"]; !errors.Is(r.err, perdure.ErrDropped) {
			t.Errorf("the caller of a dropped call gets %q, %v", r.out, r.err)
		}
		if out, err := x.Result(c); out != "dan was dropped" || err != nil {
			t.Errorf("the workflow of a dropped call ends with %q, %v", out, err)
		}
		call("fay", 3)
		close(goOn)
		for who, want := range map[string]string{"ann": "ann", "bob": "ann bob", "fay": "ann bob fay"} {
			if r := <-results[who]; r.out != want || r.err != nil {
				t.Errorf("%s: %q, %v; want %q", who, r.out, r.err, want)
			}
		}
		if calls := mailbox(0); len(calls) != 0 || slices.Contains([]string{bob.ID, cid.ID}, first.ID) {
			t.Errorf("the mailbox has %+v", calls)
		}
	})
}
