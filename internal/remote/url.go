package remote

import (
	"net"
	"strings"

	"github.com/perdure/perdure/internal/fault"
)

// defaultPort is where servers listen.
const defaultPort = "7800"

// IsURL reports whether a text is the URL of a server. Other URLs name stores.
func IsURL(url string) bool {
	scheme, _, ok := strings.Cut(url, ":")
	return ok && (scheme == "grpc" || scheme == "grpcs" || scheme == "unix")
}

// ParseURL reads the URL of one or more servers:
//
//	grpc://host:7800             TLS, unless the host is this machine
//	grpcs://host:7800            TLS
//	grpc://one:7800,two:7800     several servers of one cluster
//	unix:/run/app.sock           a socket of this machine
//
// Keys do not belong in URLs, because URLs end up in logs. Config.Token has the key.
func ParseURL(url string) (cfg Config, err error) {
	wrong := func(why string) error {
		return fault.WithHint(fault.New(fault.Invalid, "the URL of the server %s", why), "use grpc://host:7800, or unix:<path>")
	}
	scheme, rest, _ := strings.Cut(url, ":")
	if scheme == "unix" {
		path := strings.TrimPrefix(rest, "//")
		if path == "" {
			return cfg, wrong("has no path")
		}
		return Config{Addresses: []string{unixScheme + path}, PlainText: true}, nil
	}
	hosts, ok := strings.CutPrefix(rest, "//")
	switch {
	case scheme != "grpc" && scheme != "grpcs" || !ok:
		return cfg, wrong("does not begin with grpc://")
	case strings.Contains(hosts, "@"):
		return cfg, wrong("has a user name: a URL must not contain a key; set the token separately")
	}
	hosts = strings.TrimSuffix(hosts, "/")
	if strings.ContainsAny(hosts, "/?#") {
		return cfg, wrong("has a path or a query")
	}

	plain := scheme == "grpc"
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return cfg, wrong("has an empty host")
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), defaultPort)
		}
		cfg.Addresses = append(cfg.Addresses, host)
		plain = plain && local(host)
	}
	cfg.PlainText = plain
	return cfg, nil
}
