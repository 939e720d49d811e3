package postgres

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
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
	// DefaultShards is enough for 64 nodes. More shards distribute the load more evenly, but cost
	// rows and queries for each pair of shards that exchange messages.
	DefaultShards   = 64
	DefaultLease    = 10 * time.Second
	DefaultPoolSize = 4
)

// Config says where the store is and how to use it. Only URL is required.
type Config struct {
	// URL is a connection string of libpq:
	// postgres://user:password@host:port/database?sslmode=verify-full. Missing parts come from the
	// usual PG… variables. The URL may contain four parameters of our own, which override the
	// fields below: schema, shards, pool, prepare=off.
	URL string
	// Schema is the PostgreSQL schema of the tables. It consists of lower-case letters, digits and
	// _. The default is "perdure".
	Schema string
	// Shards is the number of shards. It is fixed when the store is created, and Open refuses
	// another number later. The default is the number of the existing store, or 64 for a new store.
	Shards int
	// Lease is the duration of the leases of nodes. The timeouts of a commit connection are shorter
	// than this, except the time limit of a large or late batch. The default is 10 s.
	Lease time.Duration
	// PoolSize bounds the connections for everything but commits and the renewal of leases, which
	// have their own connections. The default is 4.
	PoolSize int
	// NoPrepare sends every statement with its text, and does not change the settings of a session.
	// Set it behind a pooler that shares server connections between transactions; otherwise Open
	// refuses such a pooler. It costs about a third of the throughput. In the URL it is
	// prepare=off.
	NoPrepare bool
	// NoMigrate makes Open fail if the schema is missing or older than this build, instead of
	// creating or upgrading it.
	NoMigrate bool
	// AllowUnsafe accepts a server that may lose acknowledged commits in a crash (fsync,
	// synchronous_commit or full_page_writes off). It is for tests, and for processes that are not
	// nodes.
	AllowUnsafe bool
	// AllowDivided accepts partitioned tables, although a sweep, which deletes rows that are no
	// longer needed, would delete wrong rows in such tables. It is for tests.
	AllowDivided bool
	// Databases are the names of the databases that hold shard groups of the cluster, in addition
	// to this database. Open refuses a store whose list of databases differs.
	Databases []string
	// Member and Home are set for every database of a cluster except the first. Such a database
	// only has the rows of shard groups. Member is the name of this database in the cluster, and
	// Home is the id of the cluster. Open refuses a database with another name or of another
	// cluster.
	Member, Home string
	// Name is our application name in pg_stat_activity. The default is "perdure".
	Name string
}

// config is a parsed and valid Config.
type config struct {
	Config
	schema  string // quoted
	prepare bool
	pool    *pgxpool.Config
	// exclusive is set when checkPooler has found no sign that the pooler shares server
	// connections.
	exclusive atomic.Bool
	// server is the address of the server, for people.
	server string
	// anyPlace is set when the role of the database in a cluster does not matter.
	anyPlace bool
}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// read parses a Config and reports all problems in one error. No error quotes the URL, because it
// contains a password.
func (c Config) read() (*config, error) {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	pool, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		// The driver masks passwords "on a best-effort basis". We quote nothing at all.
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
		problem("parameter prepare of the URL must be on or off")
	}

	out.Schema = orDefault(out.Schema, DefaultSchema)
	out.Lease = orDefault(out.Lease, DefaultLease)
	out.PoolSize = orDefault(out.PoolSize, DefaultPoolSize)
	out.Name = orDefault(out.Name, "perdure")
	if !schemaName.MatchString(out.Schema) {
		problem("schema %q must have at most 48 lower-case letters, digits and _, and must not begin with a digit", out.Schema)
	}
	if strings.HasPrefix(out.Schema, "pg_") || out.Schema == "information_schema" {
		problem("schema %q belongs to PostgreSQL: choose another name", out.Schema)
	}
	if out.Shards < 0 || out.Shards > model.MaxShards {
		problem("%d shards are configured, must be 1 to %d", out.Shards, model.MaxShards)
	}
	if out.Lease < shortestLease {
		problem("a lease of %s is shorter than %s", out.Lease, shortestLease)
	}
	if out.PoolSize < 1 || out.PoolSize > 1000 {
		problem("the pool has %d connections, must have 1 to 1000", out.PoolSize)
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

// serverName returns host:port/database, without credentials.
func serverName(c *pgconn.Config) string {
	host := c.Host
	if network, address := pgconn.NetworkAddress(c.Host, c.Port); network == "tcp" {
		host = address
	}
	return host + "/" + c.Database
}

// publicURL returns the URL of the store for people, without credentials.
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

// Minimum timeouts. Timeouts are parts of the lease. Tests use leases of less than a few seconds,
// and with such a lease these minimums apply instead.
const (
	shortestLease   = 50 * time.Millisecond
	shortestTimeout = 500 * time.Millisecond
)

// part returns the given number of tenths of the lease, but at least shortestTimeout.
func (c *config) part(tenths int) time.Duration {
	return max(shortestTimeout, c.Lease*time.Duration(tenths)/10)
}

// commitTimeout returns how long we wait for the answer to a commit.
func (c *config) commitTimeout() time.Duration { return c.part(8) }

// statementTimeout returns how long the server may work on one statement of a commit.
func (c *config) statementTimeout() time.Duration { return c.part(5) }

// settings are session settings of the server by name.
type settings map[string]string

// baseSettings returns the settings of every connection. They bound waits, and make the server
// notice soon when we are gone. The store leaves out settings that the server does not know. So the
// store must not depend on settings that PostgreSQL 14 does not have.
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
		// The server plans each call again. These calls are not frequent, and a cached plan may
		// have been made when the tables had another size.
		"plan_cache_mode": "force_custom_plan",
		"enable_seqscan":  "off",
		// For a page in the order of an index, the server should read the index until the page is
		// full. A bitmap scan would first read all matching rows. The planner prefers a bitmap scan
		// when it expects few rows. It may be wrong about that, for example for a page of timers
		// when a million timers are due at the same moment.
		"enable_bitmapscan": "off",
		"jit":               "off",
	}
}

// laneSettings returns the settings of a commit connection. There the server plans a statement only
// once. The plan that is right for tables of any size is a nested loop from the sent rows to the
// index of the table. The settings force that plan. Otherwise the planner would look at the present
// table, which may be empty. It would scan the table because the table has so few rows, and keep
// that plan after the table has grown.
//
// Bitmap scans seem strange for single rows. But the planner makes a bitmap scan only with a
// condition on the index, whereas a plain index scan could read an index from end to end. The
// difference in cost is not measurable.
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

// laneName returns the application name of a commit connection. FenceNode looks for the id of the
// node in it, so PostgreSQL must keep the whole name: it keeps 63 bytes, and replaces characters
// that are not ASCII, some versions by longer ones.
func laneName(name string, k laneKey) string {
	const most = 20
	ascii := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
	return fmt.Sprintf("%.*s %s lane %d", most, ascii, k.node, k.lane)
}
