package cli

import (
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/telemetry/otlp"
)

// checkProxies refuses a proxy of the environment that the operator has not confirmed. With such a
// proxy, the server would fetch the keys of its identity provider, or send its spans, through a
// machine that its settings do not name.
func (m machine) checkProxies(f *serveFlags) error {
	if f.useProxy {
		return nil
	}
	for _, target := range f.requests() {
		at, err := url.Parse(target)
		if err != nil || at.Host == "" {
			continue // the code that uses the URL reports what is wrong
		}
		switch proxy, err := m.proxy(&http.Request{URL: at}); {
		case err != nil:
			return fault.WithHint(fault.New(fault.Invalid, "a proxy of the environment is not a URL"), "correct $HTTPS_PROXY and $HTTP_PROXY, or unset them")
		case proxy != nil:
			return fault.WithHint(fault.New(fault.Invalid, "the environment has a proxy, %s, for requests of this server to %s", proxy.Host, at.Host),
				"set --use-proxy if that is right, or add the host to $NO_PROXY")
		}
	}
	return nil
}

// requests are the URLs that the server itself makes HTTP requests to.
func (f *serveFlags) requests() (all []string) {
	keys := f.tokens.keys
	if keys == "" {
		keys = f.tokens.Issuer
	}
	if strings.Contains(keys, "://") {
		all = append(all, keys)
	}
	if otlp.Wanted(f.collector) {
		all = append(all, f.collector)
		for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"} {
			all = append(all, os.Getenv(name))
		}
	}
	return all
}
