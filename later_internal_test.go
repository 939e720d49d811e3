package perdure

import (
	"bytes"
	"testing"

	"github.com/perdure/perdure/internal/delayed"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/payload"
)

// A delayed call is stored as plain JSON, but the value inside it is stored encrypted.
func TestDelayedCallIsSealed(t *testing.T) {
	t.Parallel()
	keys, err := payload.NewKeys("k", map[string][]byte{"k": bytes.Repeat([]byte{1}, 32)}, bytes.Repeat([]byte{2}, 32))
	if err != nil {
		t.Fatal(err)
	}
	app := openAtDesk(t, newDesk(), attachment{Payloads: payload.Codec{Chain: []payload.Transform{payload.Encrypt(keys)}}})
	defer func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	}()
	call := delayed.Call{To: "entity:box", Key: "k", Name: "put", Input: schedule.Payload{Payload: model.Payload{Data: []byte(`"secret"`)}}}
	p, err := call.Encode()
	if err != nil {
		t.Fatal(err)
	}

	stored, err := app.host.sealStart(t.Context(), brief, model.Address{Tenant: "t", Type: delayed.Type, Key: "x"}, p)
	if err != nil || bytes.Contains(stored.Data, []byte("secret")) {
		t.Fatalf("stored as %s, %v", stored.Data, err)
	}
	got, err := delayed.Decode(stored)
	if err != nil {
		t.Fatal(err)
	}
	value, err := app.host.open(t.Context(), brief, "call", "put", got.Input.Payload)
	if err != nil || string(value.Data) != `"secret"` || got.Name != "put" {
		t.Errorf("%+v: %s, %v", got, value.Data, err)
	}
}
