package jwt

import "testing"

// An issuer with https cannot name a URL of keys without https, not even on this machine.
func TestDiscoveryStaysWithTLS(t *testing.T) {
	t.Parallel()
	for place, want := range map[string]bool{"https://keys.example/set": true, "http://127.0.0.1/set": false, "http://localhost:80/set": false} {
		got, err := keysOf([]byte(`{"issuer": "https://id.example", "jwks_uri": "`+place+`"}`), "https://id.example")
		if (err == nil) != want || want && got != place {
			t.Errorf("%s: %q, %v", place, got, err)
		}
	}
}
