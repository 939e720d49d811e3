package perdure_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/payload"
)

type request struct {
	OrderID string    `json:"order_id"`
	Items   []float64 `json:"items"`
	Gift    bool      `json:"gift"`
	Note    *string   `json:"note"`
}

// This table fixes how keys are derived. Another program computed the digests, as the SHA-256 of
// the msgpack of the value. Stores contain these digests, so the digests must never change. They
// are the same for every payload format.
func TestKeyDerivation(t *testing.T) {
	t.Parallel()
	const (
		ofRequest = "5a3806c69441b10db71e4888d93d7e2d1993640f37dda78d00448b70eff8e59d"
		ofOrder42 = "3dafe17b85bbafdaaa96ff178b19f97c0cf2ad04d73804f589660c99d21033ed"
		ofNothing = "76be8b528d0075f7aae98d6fa57a6d3c83ae480a8469e668d7b0af968995ac71"
		of42      = "684888c0ebb17f374298b65ee2807526c066094c701bcc7ebbe1c1095f494fc1"
	)

	in := request{OrderID: "order-42", Items: []float64{1, 300, -5, 2.5}, Gift: true}
	for _, f := range []payload.Format{payload.JSON, payload.Msgpack} {
		t.Run(f.Name(), func(t *testing.T) {
			t.Parallel()
			wf := perdure.NewWorkflow("wf", func(perdure.WorkflowCtx, request) (string, error) { return "", nil })
			none := perdure.NewWorkflow("none", func(perdure.WorkflowCtx, perdure.Void) (string, error) { return "", nil })
			app, err := embedded.Config{Payloads: payload.Codec{Format: f}}.Open(t.Context(), "memory:", wf, none)
			if err != nil {
				t.Fatal(err)
			}

			defer app.Close()
			c := app.With(t.Context())
			hashed := wf.KeyedBy(func(r request) perdure.Key { return perdure.HashKey(r.OrderID) })

			raw := wf.KeyedBy(func(r request) perdure.Key { return perdure.RawKey(r.OrderID) })
			for _, row := range []struct {
				what  string
				start func() (perdure.Execution[string], error)
				want  string
			}{
				{"no key", func() (perdure.Execution[string], error) { return wf.Start(c, in) }, ofRequest},
				{"no key, no input", func() (perdure.Execution[string], error) { return none.Start(c, perdure.Void{}) }, ofNothing},
				{"key function, hashed", func() (perdure.Execution[string], error) { return hashed.Start(c, in) }, ofOrder42},
				{"key function, not hashed", func() (perdure.Execution[string], error) { return raw.Start(c, in) }, "order-42"},
				{"key of the call, hashed", func() (perdure.Execution[string], error) { return wf.Start(c, in, perdure.HashKey("order-42")) }, ofOrder42},
				{"key of the call, not hashed", func() (perdure.Execution[string], error) { return wf.Start(c, in, perdure.RawKey("order-42")) }, "order-42"},
				{"the call wins over the function", func() (perdure.Execution[string], error) { return hashed.Start(c, in, perdure.HashKey(42)) }, of42},
			} {
				x, err := row.start()
				if err != nil || x.Ref.Key != row.want {
					t.Errorf("%s: key %s, want %s (%v)", row.what, x.Ref.Key, row.want, err)
				}
			}
		})
	}
}

// Equal values have the same key and different values have different keys, no matter what their Go
// types are.
func TestHashedNumbers(t *testing.T) {
	t.Parallel()
	digits, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	for want, values := range map[string][]any{
		"684888c0ebb17f374298b65ee2807526c066094c701bcc7ebbe1c1095f494fc1": {42, int8(42), uint64(42), 42.0, json.Number("42"), json.RawMessage("42.0"), json.RawMessage("4.2e1")},
		"d220cb801fa6814b6f521e55568040aecc9a57e378ebc949f665944cf8aa9d55": {2.5, json.RawMessage("2.50"), json.RawMessage("25e-1")},
		"59dc4a15da1738f1dfdd1482d3644c8955965e87139b2fa19f5dd5e963a373d1": {uint64(math.MaxUint64)},
		"d7b2b11c1e1a9eac30e7e6052af24eac81b70a20a177f335b451b5c5c1d4dc75": {math.MinInt64},
		"6e001715d032c415af9f5688a64e1e93c8dacc323eb3234691c94d932e19b443": {digits},
		"047b50450db025157ccaaf64a52a64841a42d3a65b8ea769c6166ac1eba7110c": {json.RawMessage("0.12345678901234567891")},
		"24d8d2f50d118c35b885179a875d7c945e47fb2db3860d8284f5456b70410246": {1000, json.RawMessage("1e3")},
		"6645226de68a1a9ab3ed0d49a8e90af5a777344461debeeb11c8c3eb20096894": {[]any{true, false, nil}},
		"c19a797fa1fd590cd2e5b42d1cf5f246e29b91684e2f87404b81dc345c7a56a0": {""},
	} {
		for _, v := range values {
			if got := perdure.HashKey(v).String(); got != want {
				t.Errorf("%T %v has key %s, want %s", v, v, got, want)
			}
		}
	}

	seen := map[string]string{}
	for _, text := range []string{
		"18446744073709551615", "18446744073709551614", "18446744073709551616", "18446744073709551617", "9007199254740993", "9007199254740992.5",
		"9007199254740992", "1.00000000000000001", "1.00000000000000002", "1", "0.1", "0.10000000000000001", "1e400", "1e401", "1e-400", "0",
	} {
		key := perdure.HashKey(json.RawMessage(text)).String()
		if old, twice := seen[key]; twice {
			t.Errorf("%s and %s have the same key", old, text)
		}
		seen[key] = text
	}
}

// A value that cannot be a key is refused where it is passed, with the reason.
func TestKeysThatAreNone(t *testing.T) {
	t.Parallel()
	wf := perdure.NewWorkflow("wf", func(perdure.WorkflowCtx, string) (string, error) { return "", nil })
	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		for want, key := range map[string]perdure.Key{
			"is empty": perdure.RawKey(""), "at most 512": perdure.RawKey(strings.Repeat("k", 513)), "UTF-8": perdure.RawKey("\xff"),
			"control character": perdure.RawKey("a\nb"), "cannot be encoded": perdure.HashKey(math.NaN()),
		} {
			for what, start := range map[string]func() error{
				"start": func() error { _, err := wf.Start(c, "", key); return err },
				"run":   func() error { _, err := wf.Run(c, "", key); return err },
				"keyed": func() error {
					_, err := wf.KeyedBy(func(string) perdure.Key { return key }).Start(c, "")
					return err
				},
			} {
				if err := start(); !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%s: %v, want %s", what, err, want)
				}
			}
		}
	}, wf)
}
