package authn

import (
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/fault"
)

// Minimum requirements of a static key, so that it cannot be guessed.
const (
	leastKey     = 16 // bytes
	leastVariety = 8  // different bytes
)

// placeholders are words that show that a key was copied from an example and not replaced.
var placeholders = []string{"changeme", "replaceme", "password", "placeholder", "example", "letmein", "topsecret"}

// checkStrength refuses a static key that others can guess. The error does not quote the key.
func checkStrength(what, key string) error {
	why := weakness(key)
	if why == "" {
		return nil
	}
	return fault.WithHint(fault.New(fault.Invalid, "%s %s", what, why), "create one with: openssl rand -hex 32")
}

// weakness says why a key is easy to guess. It returns an empty text for a key that is hard to
// guess.
func weakness(key string) string {
	if len(key) < leastKey {
		return fmt.Sprintf("has %d bytes, must be >= %d", len(key), leastKey)
	}

	different := map[byte]bool{}
	for i := range len(key) {
		different[key[i]] = true
	}
	if len(different) < leastVariety {
		return fmt.Sprintf("has %d different bytes, must have >= %d", len(different), leastVariety)
	}

	letters := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(key))
	for _, word := range placeholders {
		if strings.Contains(letters, word) {
			return fmt.Sprintf("has the word %q, as examples have", word)
		}
	}
	return ""
}
