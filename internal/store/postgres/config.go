package postgres

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Defaults of a Config.
const (
	DefaultSchema = "perdure"
	// DefaultShards is enough for 64 nodes. More shards spread finer, but cost rows and queries per
	// pair of shards that talk to each other.
	DefaultShards   = 64
	DefaultLease    = 10 * time.Second
	DefaultPoolSize = 4
)

// Config says where the store is and how to treat it. Only URL is required.
type Config struct {
	// URL is a connection string as libpq reads it:
	// postgres://user:password@host:port/database?sslmode=verify-full. What is missing comes from
	// the usual PG… variables. Four parameters of ours may stand in it and win over the fields
	// below: schema, shards, pool, prepare=off.
	URL string
	// Schema is the PostgreSQL schema that holds the tables. Default "perdure"; small letters,
	// digits and _.
	Schema string
	// Shards is the number of shards. It is fixed when the store is created: another number is
	// refused later on. Default: as created, or 64.
	Shards int
	// Lease is how long the leases of nodes will be. Every timeout of a commit connection is
	// shorter. Default 10 s.
	Lease time.Duration
	// PoolSize bounds the connections for everything but commits and the renewal of leases, which
	// have their own. Default 4.
	PoolSize int
	// NoPrepare sends every statement with its text, and changes no setting of a session. Needed
	// behind a pooler that shares server connections between transactions; Open refuses one without
	// it. Costs about a third of the throughput. Like prepare=off in the URL.
	NoPrepare bool
	// NoMigrate makes Open fail when the schema is missing or older than this build, instead of
	// creating or upgrading it.
	NoMigrate bool
	// AllowUnsafe accepts a server that loses acknowledged commits in a crash (fsync or
	// synchronous_commit off). For tests.
	AllowUnsafe bool
	// Name is who we are in pg_stat_activity. Default "perdure".
	Name string
}

// config is a valid Config, read.
type config struct {
	Config
	schema  string // quoted
	prepare bool
	pool    *pgxpool.Config
	// exclusive is set when a pooler was found to keep server connections apart
	exclusive atomic.Bool
	// cancelled by nothing: the address of the server, for people
	server string
}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// read validates a Config and reports all problems at once. No error ever quotes the URL, which
// holds a password.
func (c Config) read() (*config, error) {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	pool, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		// The driver masks passwords "on a best-effort basis"; we say nothing at all.
		return nil, fault.New(fault.Invalid, "the URL of the PostgreSQL store cannot be read; it should look like postgres://user:password@host:port/database")
	}

	out := &config{Config: c, pool: pool, prepare: !c.NoPrepare}
	take := func(name string) string {
		v := pool.ConnConfig.RuntimeParams[name]
		delete(pool.ConnConfig.RuntimeParams, name)
		return v
	}
	if v := take("schema"); v != "" {
		out.Schema = v
	}

	for name, field := range map[string]*int{"shards": &out.Shards, "pool": &out.PoolSize} {
		if v := take(name); v != "" {
			n, err := strconv.Atoi(v)
			if err != nil {
				problem("parameter %s of the URL is not a number", name)
			}
			*field = n
		}
	}

	switch v := take("prepare"); v {
	case "":
	case "on", "off":
		out.prepare = v == "on"
	default:
		problem("parameter prepare of the URL is on or off")
	}

	out.Schema = orDefault(out.Schema, DefaultSchema)
	out.Lease = orDefault(out.Lease, DefaultLease)
	out.PoolSize = orDefault(out.PoolSize, DefaultPoolSize)
	out.Name = orDefault(out.Name, "perdure")
	if !schemaName.MatchString(out.Schema) {
		problem("schema %q: small letters, digits and _ are allowed, at most 48, and no digit in front", out.Schema)
	}
	if out.Shards < 0 || out.Shards > model.MaxShards {
		problem("%d shards: there are 1 to %d", out.Shards, model.MaxShards)
	}
	if out.Lease < shortestLease {
		problem("a lease of %s is shorter than %s", out.Lease, shortestLease)
	}
	if out.PoolSize < 1 || out.PoolSize > 1000 {
		problem("a pool of %d connections: there are 1 to 1000", out.PoolSize)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fault.New(fault.Invalid, "PostgreSQL store: %w", err)
	}

	out.schema = `"` + out.Schema + `"`
	out.server = serverName(&pool.ConnConfig.Config)
	return out, nil
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// serverName is host:port/database, without credentials.
func serverName(c *pgconn.Config) string {
	host := c.Host
	if network, address := pgconn.NetworkAddress(c.Host, c.Port); network == "tcp" {
		host = address
	}
	return host + "/" + c.Database
}

// publicURL names the store for people.
func (c *config) publicURL() string {
	conn := &c.pool.ConnConfig.Config
	u := url.URL{Scheme: "postgres", Path: "/" + conn.Database}
	query := url.Values{}
	if network, _ := pgconn.NetworkAddress(conn.Host, conn.Port); network == "tcp" {
		u.Host = net.JoinHostPort(conn.Host, strconv.Itoa(int(conn.Port)))
	} else {
		query.Set("host", conn.Host)
	}
	if c.Schema != DefaultSchema {
		query.Set("schema", c.Schema)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// Shortest times. Leases of less than some seconds are for tests; then timeouts have a floor that
// is longer.
const (
	shortestLease   = 50 * time.Millisecond
	shortestTimeout = 500 * time.Millisecond
)

// part is that many tenths of the lease.
func (c *config) part(tenths int) time.Duration {
	return max(shortestTimeout, c.Lease*time.Duration(tenths)/10)
}

// commitTimeout is how long we wait for the answer to a commit.
func (c *config) commitTimeout() time.Duration { return c.part(8) }

// statementTimeout is how long the server works on one statement of a commit.
func (c *config) statementTimeout() time.Duration { return c.part(5) }

// settings are session settings of the server by name.
type settings map[string]string

// baseSettings are those of every connection: bounded waiting, and a server that notices soon when
// we are gone. No single setting may be one that a PostgreSQL 14 does not know, unless it can be
// left out: those unknown to the server are.
func (c *config) baseSettings(statement, lock time.Duration) settings {
	ms := func(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }
	seconds := func(d time.Duration) string { return strconv.FormatInt(max(1, int64(d/time.Second)), 10) }
	return settings{
		"statement_timeout":                   ms(statement),
		"lock_timeout":                        ms(lock),
		"idle_in_transaction_session_timeout": ms(c.part(5)),
		"client_connection_check_interval":    ms(min(time.Second, c.part(2))),
		"tcp_keepalives_idle":                 seconds(c.part(2)),
		"tcp_keepalives_interval":             seconds(c.part(1)),
		"tcp_keepalives_count":                "3",
		"tcp_user_timeout":                    ms(c.part(5)),
		"default_transaction_isolation":       "read committed",
		// A plan is made for each call: these are not the hot calls, and a plan that is kept was
		// made for tables of another size.
		"plan_cache_mode": "force_custom_plan",
		"enable_seqscan":  "off",
		// What is read in the order of an index is read from there until there is enough of it. A
		// bitmap has to read all of it first, and the planner takes it when it expects a few rows:
		// a page of timers where a million are due at the same moment.
		"enable_bitmapscan": "off",
		"jit":               "off",
	}
}

// laneSettings are those of a commit connection, where a plan is made once and never again, for
// tables of any size: nested loops from the rows that were sent to the index of the table. That is
// decided here and not left to the planner, which would look at a table as it is when the plan is
// made, empty perhaps, begin with the table because it has so few rows, and keep the plan when it
// has grown. Bitmap scans look odd for single rows, but are the one kind of scan that needs a
// condition on the index; plain index scans could read an index from end to end. The difference in
// cost is not measurable.
func (c *config) laneSettings(k laneKey) settings {
	s := c.baseSettings(c.statementTimeout(), c.part(4))
	maps.Copy(s, settings{
		"application_name": laneName(c.Name, k),
		// PostgreSQL 17
		"transaction_timeout":       strconv.FormatInt(c.commitTimeout().Milliseconds(), 10),
		"plan_cache_mode":           "force_generic_plan",
		"enable_bitmapscan":         "on",
		"enable_indexscan":          "off",
		"enable_indexonlyscan":      "off",
		"enable_tidscan":            "off",
		"enable_hashjoin":           "off",
		"enable_mergejoin":          "off",
		"default_toast_compression": "lz4",
	})
	return s
}

// laneName is the application name of a commit connection; FenceNode looks for it. PostgreSQL keeps
// 63 bytes.
func laneName(name string, k laneKey) string {
	const most = 20
	return fmt.Sprintf("%.*s %s lane %d", most, name, k.node, k.lane)
}
