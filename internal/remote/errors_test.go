package remote_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/remote"
)

// An error over the wire is the error that the call returns in process: the same kind, text, hint
// and failure.
func TestErrorsOverTheWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	ctx := w.ctx
	w.start("a", `"a"`)
	w.start("gone", `"a"`)
	w.must(w.far.Terminate(ctx, api.CancelRequest{Target: target("shop", "gone"), Reason: "test"}))

	for _, c := range []struct {
		what string
		kind fault.Kind
		call func(api.Client) error
	}{
		{"an execution that does not exist", fault.NotFound, func(c api.Client) error { return second(c.Describe(ctx, target("shop", "x"))) }},
		{"a run of another key", fault.NotFound, func(c api.Client) error {
			return second(c.Await(ctx, api.Target{Address: address("shop", "a"), Run: model.RunID{1}}))
		}},
		{"a signal to a closed execution", fault.Conflict, func(c api.Client) error {
			return c.Signal(ctx, api.SignalRequest{Target: target("shop", "gone"), Name: "item", RequestID: "s"})
		}},
		{"another input", fault.Conflict, func(c api.Client) error {
			return second(c.Start(ctx, api.StartRequest{Address: address("shop", "a"), Input: text(`"b"`), RequestID: "r"}))
		}},
		{"a key that is empty, and a bad label", fault.Invalid, func(c api.Client) error {
			return second(c.Start(ctx, api.StartRequest{Address: address("shop", ""), Labels: []model.Label{{Name: "%", Value: "x"}}, RequestID: "r"}))
		}},
		{"a cursor of another list", fault.Invalid, func(c api.Client) error {
			return second(c.List(ctx, api.ListRequest{Tenant: tenant, Cursor: "x"}))
		}},
		{"a policy that does not exist", fault.Invalid, func(c api.Client) error {
			return c.SetBreaker(ctx, tenant, api.Breaker{Name: "x", Ratio: 7})
		}},
		{"a limit of a queue that does not exist", fault.NotFound, func(c api.Client) error {
			return c.SetLimit(ctx, tenant, api.Limit{Name: "x", Queue: "qqq", Numbers: api.Numbers{Concurrency: 1}}, false)
		}},
		{"code that fails", fault.Internal, func(c api.Client) error {
			return second(c.Update(ctx, api.UpdateRequest{Target: target("shop", "a"), Name: "raise", Input: text("-1"), RequestID: "u"}))
		}},
		{"a removal of nothing", fault.NotFound, func(c api.Client) error {
			return second(c.Delete(ctx, api.DeleteRequest{Target: target("shop", "x"), Force: true, Export: &strings.Builder{}}))
		}},
		{"a removal without an export", fault.Invalid, func(c api.Client) error {
			return second(c.Delete(ctx, api.DeleteRequest{Target: target("shop", "gone"), Force: true}))
		}},
		{"too many starts", fault.Exhausted, func(c api.Client) error {
			return second(c.StartMany(ctx, make([]api.StartRequest, 100_001)))
		}},
		{"starts that are too large together", fault.Exhausted, func(c api.Client) error {
			large := api.StartRequest{Address: address("shop", "x"), Input: model.Payload{Data: make([]byte, 1<<20)}}
			return second(c.StartMany(ctx, slices.Repeat([]api.StartRequest{large}, 65)))
		}},
		{"an import of nothing", fault.Invalid, func(c api.Client) error {
			return second(c.Import(ctx, api.ImportRequest{Tenant: tenant, History: model.History{Start: model.Start{Address: address("shop", "")}}}))
		}},
	} {
		want, got := c.call(w.local), c.call(w.far)
		sameError(t, want, got)
		if fault.KindOf(got) != c.kind {
			t.Errorf("%s: %v (%s), want kind %s", c.what, got, fault.KindOf(got), c.kind)
		}
	}

	var f *model.Failure
	if err := second(w.far.Update(ctx, api.UpdateRequest{Target: target("shop", "a"), Name: "raise", Input: text("-1")})); !errors.As(err, &f) || f.Message != "it only goes up" {
		t.Errorf("the error of the code is %#v", err)
	}
}

// When a deadline passes, the error says what the call was waiting for, as in process. It wraps the
// error of the caller's context.
func TestDeadlinesOverTheWire(t *testing.T) {
	t.Parallel()
	w, waits := newWatched(t)
	w.start("a", `"a"`)
	w.until("the code waits", func() bool {
		d, err := w.local.Describe(w.ctx, target("shop", "a"))
		return err == nil && len(d.Reasons) > 0 && d.Reasons[0].Code == model.WaitSignal
	})

	for _, c := range []api.Client{w.local, w.far} {
		// A server that is too busy to answer in time gets more time.
		said := false
		for within := 50 * time.Millisecond; !said && within < 20*time.Second; within *= 2 {
			ctx, cancel := context.WithTimeout(w.ctx, within)
			_, err := c.Await(ctx, target("shop", "a"))
			cancel()
			if !fault.Is(err, fault.Timeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%T: the deadline has passed: %v (%s)", c, err, fault.KindOf(err))
			}
			said = strings.Contains(err.Error(), "waits for signal item")
		}
		if !said {
			t.Errorf("%T does not say what the call was waiting for", c)
		}
	}

	<-waits
	ctx, cancel := context.WithCancelCause(w.ctx)
	cause := errors.New("tired")
	go func() {
		<-waits
		cancel(cause)
	}()
	_, err := w.far.Await(ctx, target("shop", "a"))
	if !fault.Is(err, fault.Canceled) || !errors.Is(err, cause) {
		t.Errorf("the caller gave up: %v (%s)", err, fault.KindOf(err))
	}
	if _, err := w.far.Describe(ctx, target("shop", "a")); !fault.Is(err, fault.Canceled) {
		t.Errorf("a call after that: %v", err)
	}
}

// The client refuses requests that cannot be sent, and says why.
func TestRequestsThatCannotTravel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := w.ctx

	other := model.Address{Tenant: "other", Type: "shop", Key: "a"}
	for _, c := range []struct {
		what string
		kind fault.Kind
		err  error
	}{
		{"a key that is not UTF-8", fault.Invalid, second(w.far.Start(ctx, api.StartRequest{Address: address("shop", "\xff")}))},
		{"a list of such keys", fault.Invalid, second(w.far.List(ctx, api.ListRequest{Tenant: tenant, Key: "\xff"}))},
		{"a removal of such a key", fault.Invalid, second(w.far.Delete(ctx, api.DeleteRequest{Target: target("shop", "\xff")}))},
		{"a scope that does not exist", fault.Invalid, w.far.SetLimit(ctx, tenant, api.Limit{Name: "x", Per: "moon"}, true)},
		{"an operation that does not exist", fault.Invalid, second(w.far.Mailbox(ctx, api.MailboxRequest{Address: address("entity:e", "a"), Do: "burn", ID: "1"}))},
		{"a huge input", fault.Exhausted, second(w.far.Start(ctx, api.StartRequest{Address: address("shop", "a"), Input: model.Payload{Data: make([]byte, 17<<20)}}))},
		{"another tenant", fault.Denied, second(w.far.Start(ctx, api.StartRequest{Address: other}))},
		{"another tenant in many", fault.Denied, second(w.far.StartMany(ctx, []api.StartRequest{{Address: address("shop", "a")}, {Address: other}}))},
		{"a list of another tenant", fault.Denied, second(w.far.List(ctx, api.ListRequest{Tenant: "other"}))},
		{"settings of another tenant", fault.Denied, second(w.far.Limits(ctx, "other"))},
		{"no tenant", fault.Invalid, second(w.far.List(ctx, api.ListRequest{}))},
		{"an import from another tenant", fault.Denied, second(w.far.Import(ctx, api.ImportRequest{Tenant: tenant, History: model.History{Start: model.Start{Address: other}}}))},
	} {
		if fault.KindOf(c.err) != c.kind {
			t.Errorf("%s: %v (%s), want kind %s", c.what, c.err, fault.KindOf(c.err), c.kind)
		}
	}
	if n := ok[int64](w)(w.far.Count(ctx, api.ListRequest{Tenant: tenant})); n != 0 {
		t.Errorf("%d executions were started", n)
	}
}

// Callers without the key are refused. A caller with an admin key chooses its tenant, and sees
// nothing of other tenants.
func TestCredentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	for _, cfg := range []remote.Config{{}, {Token: key[1:]}, {Token: key + " "}, {Tenant: "acme"}} {
		_, err := remote.Dial(w.ctx, w.pipe.through(cfg))
		if !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}

	acme := w.dial(remote.Config{Token: key, Tenant: "acme"})
	if acme.Tenant() != "acme" || w.far.Tenant() != tenant {
		t.Errorf("tenants %s and %s", acme.Tenant(), w.far.Tenant())
	}
	w.start("a", `"a"`)
	if _, err := acme.Describe(w.ctx, api.Target{Address: model.Address{Tenant: "acme", Type: "shop", Key: "a"}}); !fault.Is(err, fault.NotFound) {
		t.Errorf("an execution of another tenant: %v", err)
	}
	if n, err := acme.Count(w.ctx, api.ListRequest{Tenant: "acme"}); n != 0 || err != nil {
		t.Errorf("%d executions of another tenant, %v", n, err)
	}
}

// A config that would send a token to another machine in plain text is refused, and so is a config
// that makes no sense.
func TestConfigs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  remote.Config
		text string
	}{
		{remote.Config{}, "there is no address"},
		{remote.Config{Addresses: []string{"host"}}, "not host:port"},
		{remote.Config{Addresses: []string{"unix:"}}, "has no path"},
		{remote.Config{Addresses: []string{"127.0.0.1:1", "db.example:7800"}, PlainText: true, Token: key}, "to db.example:7800 in plain text"},
		{remote.Config{Addresses: []string{"[::1]:1"}, Token: "a\nb"}, "printable"},
		{remote.Config{Addresses: []string{"[::1]:1"}, Patience: -1}, "must be >= 0"},
	} {
		if _, err := remote.Dial(t.Context(), c.cfg); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}

// Many starts travel in several messages, and have their replies in order.
func TestManyStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var rs []api.StartRequest
	for i := range 5_000 {
		rs = append(rs, api.StartRequest{Address: address("shop", fmt.Sprint(i)), Input: text("1")})
	}
	rs[4_321].Address.Key = ""

	for i, r := range ok[[]api.StartedReply](w)(w.far.StartMany(w.ctx, rs)) {
		if bad := i == 4_321; (r.Err != nil) != bad || r.Run.IsZero() != bad {
			t.Fatalf("start %d: %+v", i, r)
		}
	}

	if n := w.calls.served("StartMany", "OK"); n != 3 {
		t.Errorf("%d messages", n)
	}
	if n := ok[int64](w)(w.far.Count(w.ctx, api.ListRequest{Tenant: tenant})); n != 4_999 {
		t.Errorf("%d executions", n)
	}
}

// A request that protobuf cannot encode is refused as in process: the error names every wrong text.
func TestTextsThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	_, err := w.far.Start(w.ctx, api.StartRequest{Address: address("a\xff", "k"), RequestID: "r\xff", Labels: []model.Label{{Name: "team", Value: "x\xff"}}})
	for _, words := range []string{`the name of the workflow "a\xff"`, `the request id "r\xff"`, `the value "x\xff"`, "is not valid UTF-8"} {
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %s", err, words)
		}
	}
	_, err = w.far.List(w.ctx, api.ListRequest{Tenant: tenant, Workflows: []string{"fine", "a\xff"}})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `the name of the workflow "a\xff"`) {
		t.Errorf("a list: %v", err)
	}
}

// away is an engine whose store is away.
type away struct{ api.Backend }

func (away) Reach(context.Context) error { return fault.New(fault.Unavailable, "the store is away") }

// Reach reports an error for a server whose store is away, although the server answers.
func TestReachOfAServerWithoutStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, program())
	if err := w.far.Reach(w.ctx); err != nil {
		t.Error(err)
	}
	cfg := w.config()
	cfg.Backend = away{cfg.Backend}
	p := newPipe(t, cfg)
	far, err := remote.Dial(w.ctx, p.through(remote.Config{Token: key}))
	w.must(err)
	defer far.Close()
	if err := far.Reach(w.ctx); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "the store is away") {
		t.Errorf("without a store: %v", err)
	}
}
