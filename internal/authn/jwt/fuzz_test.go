package jwt_test

import (
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// FuzzToken presents texts that the issuer has not signed. The server refuses each of them, as a
// token and as a key.
func FuzzToken(f *testing.F) {
	i := newIssuer(f)
	now := time.Now()
	good := i.sign("EdDSA", object{"alg": "EdDSA", "kid": "d"}, object{"iss": "https://id.example", "aud": "perdure", "sub": "a", "tenant": "acme", "roles": []string{"reader"}, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()})
	keys, v := ring(f, i, config)
	if _, err := v.Verify(good, now); err != nil {
		f.Fatalf("the token that the fuzzer begins with: %v", err)
	}

	parts := strings.Split(good, ".")
	for _, text := range []string{
		"", ".", "..", "...", strings.Repeat(".", 10_000), parts[0] + ".." + parts[2], parts[0] + "." + parts[1] + ".", "e30.e30.", "e30.e30.e30", good + ".", "." + good, good[:len(good)-1],
		strings.ToUpper(good), strings.Repeat("a", 9000), "pdk_x", "fwt_x", adminKey[:31], adminKey + "x", "\x00", parts[1] + "." + parts[0] + "." + parts[2],
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == good || text == adminKey {
			return
		}
		if who, err := v.Verify(text, now); err == nil {
			t.Errorf("%q lets in, as a token of %+v", text, who)
		}
		who, err := keys.Authenticate(t.Context(), map[string][]string{"authorization": {"Bearer " + text}})
		if err == nil || !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%q lets in, as the key of %+v: %v", text, who, err)
		}
	})
}
