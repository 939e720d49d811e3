package jwt

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/perdure/perdure/internal/fault"
)

// wellKnown is the path, after the URL of an issuer, of the configuration that names its keys.
const wellKnown = "/.well-known/openid-configuration"

// maxMetadata bounds the OpenID configuration of an issuer, in bytes.
const maxMetadata = 256 << 10

// Discover returns the source of the keys that an issuer names in its OpenID configuration. Each
// load asks the issuer again, so the URL of the keys may change.
func Discover(issuer string) (*Source, error) {
	if err := checkURL("an issuer", issuer, false); err != nil {
		return nil, err
	}
	u, err := url.Parse(issuer)
	if err != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(issuer, "#") {
		return nil, fault.New(fault.Invalid, "%.200q is not the URL of an issuer: it has a query or a fragment", issuer)
	}
	s := newSource(strings.TrimSuffix(issuer, "/") + wellKnown)
	s.issuer, s.client = issuer, newClient()
	return s, nil
}

// locate asks the issuer where its keys are.
func (s *Source) locate(ctx context.Context) (string, error) {
	data, err := s.get(ctx, s.place, maxMetadata)
	if err != nil {
		return "", fault.New(fault.Unavailable, "read the configuration of the issuer: %w", err)
	}
	return keysOf(data, s.issuer)
}

// keysOf returns the URL of the keys from the OpenID configuration of an issuer. The configuration
// must name exactly the issuer that was asked. Otherwise one issuer could answer for another. The
// keys may be at a URL without https only if both the issuer and the keys are on this machine.
func keysOf(data []byte, issuer string) (string, error) {
	if len(data) > maxMetadata {
		return "", fault.New(fault.Invalid, "the configuration of the issuer has more than %d bytes", maxMetadata)
	}
	var all map[string]json.RawMessage // a struct would also accept names in upper case
	if uniqueNames(data) != nil || json.Unmarshal(data, &all) != nil {
		return "", fault.New(fault.Invalid, "the configuration of the issuer is not a JSON object whose names are unique")
	}

	var named, place string
	if json.Unmarshal(all["issuer"], &named) != nil || named != issuer {
		return "", fault.New(fault.Invalid, "the configuration belongs to the issuer %.200q, must belong to %.200q", named, issuer)
	}
	if json.Unmarshal(all["jwks_uri"], &place) != nil || place == "" {
		return "", fault.New(fault.Invalid, "the configuration of the issuer does not say where its keys are (jwks_uri)")
	}
	return place, checkURL("a key set", place, strings.HasPrefix(issuer, "https:"))
}

// checkURL refuses a text that is not a URL, and a URL without https. If strict is false, it
// accepts a URL of this machine without https.
func checkURL(what, text string, strict bool) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return fault.New(fault.Invalid, "%.200q is not the URL of %s", text, what)
	}
	if u.Scheme != "https" && (strict || u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return fault.New(fault.Invalid, "the URL of %s must use https", what)
	}
	return nil
}
