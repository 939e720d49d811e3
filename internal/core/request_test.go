package core_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Two messages with one request id are different requests if they differ in one of these ways.
// Other differences do not matter.
func TestMisused(t *testing.T) {
	t.Parallel()
	to := model.Address{Tenant: "default", Type: "order", Key: "1"}
	base := model.Message{Kind: model.MessageSignal, To: to, Name: "paid", Input: model.TextPayload("5"), RequestID: "r"}

	change := func(f func(m *model.Message)) model.Message {
		m := base
		f(&m)
		return m
	}

	sealed := func(data, sum string) func(m *model.Message) {
		return func(m *model.Message) {
			m.Input = model.Payload{Data: []byte(data), Encoding: "json+aes"}
			if sum != "" {
				m.Input = m.Input.WithSum([]byte(sum))
			}
		}
	}

	run := func(b byte) model.RunID { return model.RunID{15: b} }
	cases := []struct {
		name          string
		first, second model.Message
		misused       bool
	}{
		{"the same", base, base, false},
		{"other name", base, change(func(m *model.Message) { m.Name = "sent" }), true},
		{"other input", base, change(func(m *model.Message) { m.Input = model.TextPayload("6") }), true},
		{"other kind", base, change(func(m *model.Message) { m.Kind = model.MessageSettle }), true},
		{"other failure", change(func(m *model.Message) { m.Failure = &model.Failure{Message: "a"} }), change(func(m *model.Message) { m.Failure = &model.Failure{Message: "b"} }), true},
		{"one way", base, change(func(m *model.Message) { m.OneWay = true }), true},
		{"other section", base, change(func(m *model.Message) { m.Section = "s" }), true},
		{"other epoch", base, change(func(m *model.Message) { m.Epoch = 1 }), true},
		{"other signal along", base, change(func(m *model.Message) { m.With = []model.Event{{Name: "a"}} }), true},
		{"other trace, labels, policy", base, change(func(m *model.Message) {
			m.Trace, m.Labels, m.Reuse = "t", []model.Label{{Name: "a"}}, model.ReuseAlways
		}), false},
		{"no run named", base, change(func(m *model.Message) { m.ToRun = run(1) }), false},
		{"another run named", base, change(func(m *model.Message) { m.ToRun = run(2) }), true},
		{"sealed again", change(sealed("a", "x")), change(sealed("b", "x")), false},
		{"sealed, other sum", change(sealed("a", "x")), change(sealed("b", "y")), true},
		{"sealed without a sum", change(sealed("a", "")), change(sealed("b", "")), false},
		{"sealed with a sum after one without", change(sealed("a", "")), change(sealed("b", "x")), false},
		{
			"another past that was asked for alike", change(func(m *model.Message) { m.Past, m.Asked = &model.Past{}, []byte("a") }),
			change(func(m *model.Message) { m.Past, m.Asked = &model.Past{Next: 7}, []byte("a") }), false,
		},
		{
			"a past that was asked for otherwise", change(func(m *model.Message) { m.Past, m.Asked = &model.Past{}, []byte("a") }),
			change(func(m *model.Message) { m.Past, m.Asked = &model.Past{}, []byte("b") }), true,
		},
		{"drawn by the engine", base, change(func(m *model.Message) { m.Name, m.Drawn = "sent", true }), false},
	}
	for _, c := range cases {
		body := model.AppendAnswer(nil, &model.Answer{Run: run(1), For: c.first.Use()})
		stored, err := model.DecodeAnswer(body)
		if err != nil {
			t.Fatal(err)
		}
		f := core.MisuseOfAnswered(&c.second, &stored)
		if (f != nil) != c.misused {
			t.Errorf("%s: %v, want it misused: %v", c.name, f, c.misused)
		}
		if f != nil && (f.Kind != fault.Conflict.String() || !strings.Contains(f.Message, `"r"`) || !strings.Contains(f.Message, to.String()) || !strings.Contains(f.Message, `"paid"`)) {
			t.Errorf("%s: %+v names not the id, the target and the first use", c.name, f)
		}
		stored.For = nil // as an older build stores it
		if f := core.MisuseOfAnswered(&c.second, &stored); f != nil {
			t.Errorf("%s: %v, although the first use of the id is unknown", c.name, f)
		}
	}
}
