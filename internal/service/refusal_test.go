package service_test

import (
	"context"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/service"
)

// call is one operation on an execution.
type call struct {
	name string
	do   func(ctx context.Context, s *service.Service, t api.Target) error
	// writes says that the call needs the engine.
	writes bool
}

var calls = []call{
	{"start", func(ctx context.Context, s *service.Service, t api.Target) error {
		_, err := s.Start(ctx, api.StartRequest{Address: t.Address})
		return err
	}, true},
	{"signal", func(ctx context.Context, s *service.Service, t api.Target) error {
		return s.Signal(ctx, api.SignalRequest{Target: t, Name: "s"})
	}, true},
	{"settle", func(ctx context.Context, s *service.Service, t api.Target) error {
		return s.Settle(ctx, api.SettleRequest{Target: t, Name: "p"})
	}, true},
	{"cancel", func(ctx context.Context, s *service.Service, t api.Target) error {
		return s.Cancel(ctx, api.CancelRequest{Target: t})
	}, true},
	{"await", func(ctx context.Context, s *service.Service, t api.Target) error {
		_, err := s.Await(ctx, t)
		return err
	}, true},
	{"describe", func(ctx context.Context, s *service.Service, t api.Target) error {
		_, err := s.Describe(ctx, t)
		return err
	}, false},
	{"history", func(ctx context.Context, s *service.Service, t api.Target) error {
		_, err := s.History(ctx, api.HistoryRequest{Target: t, After: -1})
		return err
	}, false},
}

// Every operation refuses an impossible address, with a sentence that says what is wrong with which
// part.
func TestInvalidAddresses(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	good := model.Address{Tenant: "default", Type: "order", Key: "1"}

	long := func(n int) string { return strings.Repeat("x", n) }
	for _, v := range []struct {
		name   string
		change func(a *model.Address)
		says   string
	}{
		{"no tenant", func(a *model.Address) { a.Tenant = "" }, "the tenant is empty"},
		{"no workflow", func(a *model.Address) { a.Type = "" }, "the name of the workflow is empty"},
		{"no key", func(a *model.Address) { a.Key = "" }, "the key is empty"},
		{"long tenant", func(a *model.Address) { a.Tenant = long(65) }, "at most 64"},
		{"long workflow", func(a *model.Address) { a.Type = long(201) }, "the name of the workflow has 201 bytes"},
		{"long key", func(a *model.Address) { a.Key = long(513) }, "the key has 513 bytes, at most 512"},
		{"key not UTF-8", func(a *model.Address) { a.Key = "a\xff" }, "the key is not valid UTF-8"},
		{"half a character", func(a *model.Address) { a.Key = "\xe2\x82" }, "not valid UTF-8"},
		{"surrogate", func(a *model.Address) { a.Key = "\xed\xa0\x80" }, "not valid UTF-8"},
		{"NUL in the key", func(a *model.Address) { a.Key = "a\x00b" }, "the key contains the control character U+0000"},
		{"newline in the workflow", func(a *model.Address) { a.Type = "a\nb" }, "the name of the workflow contains the control character U+000A"},
		{"escape in the tenant", func(a *model.Address) { a.Tenant = "\x1b[31m" }, "is not a name of letters"},
		{"delete", func(a *model.Address) { a.Key = "\x7f" }, "control character U+007F"},
		{"C1 control", func(a *model.Address) { a.Key = "\u0085" }, "control character U+0085"},
		{"unit separator", func(a *model.Address) { a.Key = "a\x1fb" }, "control character U+001F"},
	} {
		a := good
		v.change(&a)
		for _, c := range calls {
			err := c.do(t.Context(), f.svc, api.Target{Address: a})
			wantKind(t, c.name+", "+v.name, err, fault.Invalid)
			if err != nil && !strings.Contains(err.Error(), v.says) {
				t.Errorf("%s, %s: %q does not say %q", c.name, v.name, err, v.says)
			}
		}
	}

	// Odd but valid.
	for _, k := range []string{"a/b", " ", "ß", "\U0001f980", "..", "'; drop table runs", "\u200b", long(512), "%"} {
		err := calls[len(calls)-1].do(t.Context(), f.svc, api.Target{Address: model.Address{Tenant: "default", Type: "order", Key: k}})
		wantKind(t, "key "+k, err, fault.NotFound)
	}
}

// The service reports all problems of a request in one error.
func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	err := f.svc.Signal(t.Context(), api.SignalRequest{
		Target: api.Target{Address: model.Address{Type: "a\x00"}}, Input: model.Payload{Data: make([]byte, 2<<20+1)}, RequestID: "\xff",
	})
	wantKind(t, "signal", err, fault.Invalid)
	for _, says := range []string{"tenant is empty", "workflow contains", "key is empty", "name of the signal is empty", "value has 2097153 bytes", "request id is not valid"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q does not say %q", err, says)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	target := api.Target{Address: order("1")}
	big := model.Payload{Data: make([]byte, 2<<20+1)}
	encoded := model.Payload{Data: make([]byte, 2<<20), Encoding: "x"} // the bytes of the encoding are part of the size
	text := strings.Repeat("x", 2<<20+1)
	var many []model.Label
	for i := range model.MaxLabels + 1 {
		many = model.SetLabel(many, "l"+string(rune('A'+i)), "x")
	}

	for _, v := range []struct {
		name string
		err  func(ctx context.Context) error
	}{
		{"start with a big input", func(ctx context.Context) error {
			_, err := f.svc.Start(ctx, api.StartRequest{Address: order("1"), Input: big})
			return err
		}},
		{"start of a name with a slash", func(ctx context.Context) error {
			_, err := f.svc.Start(ctx, api.StartRequest{Address: model.Address{Tenant: "default", Type: "a/b", Key: "1"}})
			return err
		}},
		{"run of a reserved name", func(ctx context.Context) error {
			_, err := f.svc.Run(ctx, api.StartRequest{Address: model.Address{Tenant: "default", Type: "perdure.mine", Key: "1"}})
			return err
		}},
		{"start with a big signal", func(ctx context.Context) error {
			_, err := f.svc.Start(ctx, api.StartRequest{Address: order("1"), With: []api.Message{{Name: "ok"}, {Name: "s", Input: encoded}}})
			return err
		}},
		{"start with a nameless signal", func(ctx context.Context) error {
			_, err := f.svc.Start(ctx, api.StartRequest{Address: order("1"), With: []api.Message{{}}})
			return err
		}},
		{"start with a bad request id", func(ctx context.Context) error {
			_, err := f.svc.Start(ctx, api.StartRequest{Address: order("1"), RequestID: "a\nb"})
			return err
		}},
		{"start with too many labels", func(ctx context.Context) error {
			_, err := f.svc.Start(ctx, api.StartRequest{Address: order("1"), Labels: many})
			return err
		}},
		{"start with a nameless label", func(ctx context.Context) error {
			_, err := f.svc.Start(ctx, api.StartRequest{Address: order("1"), Labels: []model.Label{{Value: "x"}}})
			return err
		}},
		{"start with a label without value", func(ctx context.Context) error {
			_, err := f.svc.Start(ctx, api.StartRequest{Address: order("1"), Labels: []model.Label{{Name: "x"}}})
			return err
		}},
		{"start with a label twice", func(ctx context.Context) error {
			_, err := f.svc.Start(ctx, api.StartRequest{Address: order("1"), Labels: []model.Label{{Name: "x", Value: "1"}, {Name: "x", Value: "2"}}})
			return err
		}},
		{"start with labels out of order", func(ctx context.Context) error {
			_, err := f.svc.Start(ctx, api.StartRequest{Address: order("1"), Labels: []model.Label{{Name: "y", Value: "1"}, {Name: "x", Value: "2"}}})
			return err
		}},
		{"big signal", func(ctx context.Context) error {
			return f.svc.Signal(ctx, api.SignalRequest{Target: target, Name: "s", Input: big})
		}},
		{"signal with a long name", func(ctx context.Context) error {
			return f.svc.Signal(ctx, api.SignalRequest{Target: target, Name: strings.Repeat("n", 201)})
		}},
		{"signal with a control character in its name", func(ctx context.Context) error {
			return f.svc.Signal(ctx, api.SignalRequest{Target: target, Name: "a\tb"})
		}},
		{"signal with a long request id", func(ctx context.Context) error {
			return f.svc.Signal(ctx, api.SignalRequest{Target: target, Name: "s", RequestID: strings.Repeat("r", 201)})
		}},
		{"big promise", func(ctx context.Context) error {
			return f.svc.Settle(ctx, api.SettleRequest{Target: target, Name: "p", Value: big})
		}},
		{"promise with a big failure", func(ctx context.Context) error {
			return f.svc.Settle(ctx, api.SettleRequest{Target: target, Name: "p", Failure: &model.Failure{Message: text}})
		}},
		{"nameless promise", func(ctx context.Context) error {
			return f.svc.Settle(ctx, api.SettleRequest{Target: target})
		}},
		{"cancel for a long reason", func(ctx context.Context) error {
			return f.svc.Cancel(ctx, api.CancelRequest{Target: target, Reason: text})
		}},
		{"cancel with a bad request id", func(ctx context.Context) error {
			return f.svc.Cancel(ctx, api.CancelRequest{Target: target, RequestID: "\xff"})
		}},
		{"list of a workflow that cannot be", func(ctx context.Context) error {
			_, err := f.svc.List(ctx, api.ListRequest{Tenant: model.DefaultTenant, Workflows: []string{"a\x00"}})
			return err
		}},
		{"count of keys that cannot be", func(ctx context.Context) error {
			_, err := f.svc.Count(ctx, api.ListRequest{Tenant: model.DefaultTenant, KeyPrefix: "\xff"})
			return err
		}},
		{"list of a tenant that cannot be", func(ctx context.Context) error {
			_, err := f.svc.List(ctx, api.ListRequest{Tenant: "a\x00"})
			return err
		}},
		{"list by a label that cannot be", func(ctx context.Context) error {
			_, err := f.svc.List(ctx, api.ListRequest{Tenant: model.DefaultTenant, Labels: []model.LabelCondition{{Name: "a b", Values: []string{"x"}}}})
			return err
		}},
		{"count by a value that cannot be", func(ctx context.Context) error {
			_, err := f.svc.Count(ctx, api.ListRequest{Tenant: model.DefaultTenant, Labels: []model.LabelCondition{{Name: "a", Values: []string{"\x00"}}}})
			return err
		}},
		{"list by a reason that cannot be", func(ctx context.Context) error {
			_, err := f.svc.List(ctx, api.ListRequest{Tenant: model.DefaultTenant, Reasons: []model.ReasonCode{"\xff"}})
			return err
		}},
		{"list with a cursor that is no text of ours", func(ctx context.Context) error {
			_, err := f.svc.List(ctx, api.ListRequest{Tenant: model.DefaultTenant, Cursor: "!"})
			return err
		}},
		{"list with a cursor that is too short", func(ctx context.Context) error {
			_, err := f.svc.List(ctx, api.ListRequest{Tenant: model.DefaultTenant, Cursor: "AAAA"})
			return err
		}},
		{"list with a cursor that is too long", func(ctx context.Context) error {
			_, err := f.svc.List(ctx, api.ListRequest{Tenant: model.DefaultTenant, Cursor: strings.Repeat("A", 36)})
			return err
		}},
		{"list with a padded cursor", func(ctx context.Context) error {
			_, err := f.svc.List(ctx, api.ListRequest{Tenant: model.DefaultTenant, Cursor: strings.Repeat("A", 31) + "="})
			return err
		}},
		{"count with a bad cursor", func(ctx context.Context) error {
			_, err := f.svc.Count(ctx, api.ListRequest{Tenant: model.DefaultTenant, Cursor: "x"})
			return err
		}},
	} {
		wantKind(t, v.name, v.err(t.Context()), fault.Invalid)
	}
}

// Limits are configurable, and a request at the limit passes.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := live(t, service.Limits{Name: 5, Key: 3, Payload: 10})
	start := func(workflow, key string, size int) error {
		_, err := s.Start(t.Context(), api.StartRequest{Address: model.Address{Tenant: "t", Type: workflow, Key: key}, Input: model.Payload{Data: make([]byte, size)}})
		return err
	}
	if err := start("12345", "123", 10); err != nil {
		t.Errorf("at the limits: %v", err)
	}
	wantKind(t, "name", start("123456", "123", 10), fault.Invalid)
	wantKind(t, "key", start("12345", "1234", 10), fault.Invalid)
	wantKind(t, "payload", start("12345", "123", 11), fault.Invalid)

	deliver := func(size, signal int) error {
		return s.Deliver(t.Context(), &model.Message{
			Kind: model.MessageStart, To: model.Address{Tenant: "t", Type: "12345", Key: "9"}, Input: model.Payload{Data: make([]byte, size)},
			With: []model.Event{{Name: "s", Input: model.Payload{Data: make([]byte, signal)}}},
		})
	}
	if err := deliver(10, 10); err != nil {
		t.Errorf("a delivered start at the limits: %v", err)
	}
	wantKind(t, "the input of a delivered start", deliver(11, 10), fault.Invalid)
	wantKind(t, "a signal of a delivered start", deliver(10, 11), fault.Invalid)
}

// A service without an engine only reads. It refuses other valid requests because the store is open
// for reading only.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	f := newShelf(t)
	f.put(order("1"), 0, 1)
	for _, c := range calls {
		err := c.do(t.Context(), f.svc, api.Target{Address: order("1")})
		want := fault.Unclassified
		if c.writes {
			want = fault.Denied
		}
		wantKind(t, c.name, err, want)
	}
	if _, err := f.svc.Join(t.Context(), nil, api.Offer{}); !fault.Is(err, fault.Denied) {
		t.Errorf("join: %v, want Denied", err)
	}
}

func TestUnknownExecutions(t *testing.T) {
	t.Parallel()
	s := live(t, service.Limits{})
	r, err := s.Start(t.Context(), api.StartRequest{Address: order("1")})
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Start(t.Context(), api.StartRequest{Address: order("2")})
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range calls {
		if c.name == "start" {
			continue
		}
		wantKind(t, c.name+" of a missing execution", c.do(t.Context(), s, api.Target{Address: order("nobody")}), fault.NotFound)
		wantKind(t, c.name+" of a run that does not exist", c.do(t.Context(), s, api.Target{Address: order("1"), Run: model.RunID{9}}), fault.NotFound)
		wantKind(t, c.name+" of a run of another", c.do(t.Context(), s, api.Target{Address: order("1"), Run: other.Run}), fault.NotFound)
		if c.name != "await" { // await would wait
			wantKind(t, c.name, c.do(t.Context(), s, api.Target{Address: order("1"), Run: r.Run}), fault.Unclassified)
		}
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	s := live(t, service.Limits{})
	target := api.Target{Address: order("1")}
	start := api.StartRequest{Address: order("1"), Input: model.Payload{Data: []byte("1")}}
	first, err := s.Start(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}

	again, err := s.Start(t.Context(), start)
	if err != nil || again.Run != first.Run || !again.Existing || again.Status != model.Running {
		t.Errorf("the same start again = %+v, %v", again, err)
	}
	start.Input.Data = []byte("2")
	_, err = s.Start(t.Context(), start)
	wantKind(t, "start with another input", err, fault.Conflict)

	for _, want := range []fault.Kind{fault.Unclassified, fault.Conflict} {
		wantKind(t, "settle", s.Settle(t.Context(), api.SettleRequest{Target: target, Name: "p"}), want)
		// A repetition is allowed.
		wantKind(t, "cancel", s.Cancel(t.Context(), api.CancelRequest{Target: target, Reason: "x"}), fault.Unclassified)
	}

	d, err := s.Describe(t.Context(), target)
	if err != nil || d.Events != 3 || len(d.Reasons) == 0 || d.Reasons[0].Code != model.WaitWorker || d.Owner.IsZero() {
		t.Errorf("described as %+v, %v", d, err)
	}
	_, err = s.Join(t.Context(), nil, api.Offer{Tenant: model.DefaultTenant, Workflows: []string{"ok", "a\x00"}})
	wantKind(t, "join with a bad name", err, fault.Invalid)
}

// closer is a worker whose runs end immediately.
type closer struct {
	session chan api.Session
}

func (w *closer) Activate(a *api.Activation) {
	go func() {
		s := <-w.session
		w.session <- s
		_ = s.Report(context.Background(), model.Turn{
			Run: a.Start.Run, Generation: a.Generation, Seen: int64(len(a.Events)),
			Close: &model.Close{Status: model.Completed, Output: model.Payload{Data: []byte("secret of " + a.Start.Address.Tenant)}},
		})
	}()
}

func (w *closer) Deliver(model.RunID, uint64, []model.Event)           {}
func (w *closer) Retry(model.RunID, uint64, string)                    {}
func (*closer) Query(model.RunID, uint64, model.Query)                 {}
func (*closer) Recall(model.Address, model.RunID, uint64, model.Query) {}
func (*closer) Taken(model.RunID, uint64)                              {}

func (w *closer) Evict(model.RunID, uint64, string) {}

// The run id of another tenant gives no access, even if that run is in the same shard.
func TestRunOfAnotherTenant(t *testing.T) {
	t.Parallel()
	s := live(t, service.Limits{})
	w := &closer{session: make(chan api.Session, 1)}
	session, err := s.Join(t.Context(), w, api.Offer{Tenant: "acme", Workflows: []string{"order"}})
	if err != nil {
		t.Fatal(err)
	}

	w.session <- session
	theirs := model.Address{Tenant: "acme", Type: "order", Key: "1"}
	r, err := s.Start(t.Context(), api.StartRequest{Address: theirs})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Await(t.Context(), api.Target{Address: theirs}); err != nil || string(got.Outcome.Output.Data) != "secret of acme" {
		t.Fatalf("their own result = %+v, %v", got, err)
	}

	for i := range 50 { // some of them share the shard
		mine := api.Target{Address: order(strings.Repeat("x", i+1)), Run: r.Run}
		for _, c := range calls {
			if c.name != "start" {
				wantKind(t, c.name, c.do(t.Context(), s, mine), fault.NotFound)
			}
		}
	}
}
