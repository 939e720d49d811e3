package model_test

import (
	"bytes"
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// A sum represents the content. Two payloads that are stored in different ways are equal if their
// contents are equal.
func TestSums(t *testing.T) {
	t.Parallel()
	plain := model.Payload{Data: []byte(`{"n":1}`)}
	small := model.Payload{Data: []byte{1}, Encoding: "json+zstd"}.WithSum(plain.Digest())
	elsewhere := model.Payload{Data: []byte{2}, Encoding: "json+blob"}.WithSum(plain.Digest())
	other := model.Payload{Data: []byte{2}, Encoding: "json+blob"}.WithSum(model.Payload{Data: []byte(`{"n":2}`)}.Digest())
	if small.Form() != "json+zstd" || plain.Form() != "" || other.WithSum([]byte{9}).Form() != "json+blob" {
		t.Error(small.Form(), plain.Form())
	}

	for _, c := range []struct {
		a, b model.Payload
		same bool
	}{
		{plain, plain, true},
		{plain, small, true},
		{small, elsewhere, true},
		{elsewhere, other, false},
		{plain, other, false},
		{plain, model.Payload{Data: plain.Data, Encoding: "text"}, false},
		{model.Payload{Encoding: "x;sum=!"}, model.Payload{Encoding: "y;sum=?"}, false},
		{model.Payload{Encoding: "x;sum="}, plain, false},
	} {
		if c.a.Equal(c.b) != c.same || c.b.Equal(c.a) != c.same || bytes.Equal(c.a.Digest(), c.b.Digest()) != c.same {
			t.Errorf("%+v and %+v: equal %v, want %v", c.a, c.b, c.a.Equal(c.b), c.same)
		}
	}
}
