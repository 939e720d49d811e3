package nats

import (
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/perdure/perdure/internal/fault"
)

// DefaultPrefix is the first word of all subjects.
const DefaultPrefix = "perdure"

// Config configures a hub. URL and Cluster are required.
type Config struct {
	// URL is the URL of one server, or of several separated by commas: nats://host:4222 or
	// tls://host:4222.
	URL string
	// Credentials is a file with the credentials of a NATS user; empty for none. The hub reads it
	// again whenever it connects.
	Credentials string
	// Prefix is the first word of all subjects. Default DefaultPrefix.
	Prefix string
	// Cluster is the id of the store. Nodes of other stores do not receive its hints.
	Cluster string
	// Log gets a line when NATS goes away and one when it works again. Default: none.
	Log *slog.Logger
}

var prefixes = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,7}$`)

// Check returns what is wrong with a configuration. It connects to nothing, and its errors do not
// quote the URL, which may have a password.
func (c *Config) Check() error {
	for part := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(part))
		if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
			return fault.WithHint(fault.New(fault.Invalid, "the URL of NATS cannot be read"), "it looks like nats://host:4222 or tls://host:4222, and commas separate several servers")
		}
	}
	if c.Prefix != "" && !prefixes.MatchString(c.Prefix) {
		return fault.New(fault.Invalid, "the prefix of NATS subjects is %.80q, must be words of letters, digits, _ and -, with dots between them", c.Prefix)
	}
	if c.Credentials != "" {
		if _, err := os.ReadFile(c.Credentials); err != nil {
			return fault.New(fault.Invalid, "read the credentials for NATS: %w", err)
		}
	}
	return nil
}
