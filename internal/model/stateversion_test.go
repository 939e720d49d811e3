package model_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// The version of a state is part of its encoding. Adding it does not change the rest of the
// encoding.
func TestStateVersion(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"", "msgpack", "json+zstd+aes"} {
		p := model.Payload{Data: []byte("1"), Encoding: encoding}
		if p.StateVersion() != 1 || p.WithStateVersion(1).Encoding != encoding || p.WithStateVersion(0).Encoding != encoding {
			t.Errorf("%q has version %d", encoding, p.StateVersion())
		}
		marked := p.WithStateVersion(7).WithStateVersion(12)
		if marked.StateVersion() != 12 || marked.Form() != encoding || marked.Bare().Encoding != encoding || marked.Encoding == encoding {
			t.Errorf("%q: %q has version %d and the form %q", encoding, marked.Encoding, marked.StateVersion(), marked.Form())
		}
	}
	for _, encoding := range []string{";v=", ";v=0", ";v=-1", ";v=x", ";v=1;v=2"} {
		if v := (model.Payload{Encoding: encoding}).StateVersion(); v <= model.MaxStateVersion {
			t.Errorf("%q is version %d", encoding, v)
		}
	}
}

// FuzzEntityVersion checks that String returns the text that ParseEntityVersion has read.
func FuzzEntityVersion(f *testing.F) {
	for _, text := range []string{"0", "3", "3-1789000000000000", "-1", "3-", "3-0", "0-3", "99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, ok := model.ParseEntityVersion(text)
		if !ok {
			return
		}
		again, ok := model.ParseEntityVersion(v.String())
		if !ok || again != v || !v.Fits(again) {
			t.Errorf("%q is %+v, and %s is %+v, %v", text, v, v, again, ok)
		}
	})
}
