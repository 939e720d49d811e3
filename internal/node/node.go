// Package node wires a node together from the packages of its parts. Open reads from top to bottom:
// store, hints, engine, service. Close goes the other way.
package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/audit"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/feed"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/series"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	notifypg "github.com/perdure/perdure/internal/notify/postgres"
	"github.com/perdure/perdure/internal/peerlink"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
	"github.com/perdure/perdure/internal/store/sqlite"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
)

// Config configures a node. A zero field selects its default.
type Config struct {
	// URL names the store: memory:, file:<path>, or postgres://…
	URL string
	// Schema is the PostgreSQL schema. Default "perdure".
	Schema string
	// Databases are further databases, in addition to URL, that hold shard groups of the store: the
	// URL of each database by its name. All processes of a cluster have the same Databases.
	Databases map[string]string
	// Shards is the number of shards of a new store. Default: the default of the kind of store.
	Shards int
	// ReadOnly opens a store that another process may own, only to read it.
	ReadOnly bool
	// Guest opens a shared store only to send requests to its nodes: this process owns no shard and
	// does not upgrade the schema. A store that only one process may open is opened as usual.
	Guest bool
	// NoMigrate refuses a store whose schema is not up to date, instead of upgrading it.
	NoMigrate bool
	// PeerListen is where other nodes of the cluster connect to this one: host:port, or :port.
	// Default: a free port on the address from which this process reaches the database.
	PeerListen string
	// PeerAdvertise is the address at which other nodes reach PeerListen, host:port. Default: the
	// address on which the node listens.
	PeerAdvertise string
	// NoPeerLink switches the connections between nodes off. Without them, nodes exchange requests
	// only through the store.
	NoPeerLink bool
	// Weight is the share of the shards that this node should own, relative to the other nodes.
	// Default 100, at least 1 and at most 10,000.
	Weight int
	// Groups are the shard groups whose shards this node takes. Default: the default group. A store
	// that only one process opens has no groups. There the setting has no effect, and a server
	// refuses groups other than the default one.
	Groups []string
	// Carrier opens a further carrier of hints (wake-ups between nodes) and changes; nil for none.
	// The node closes the carrier that the function returns. cluster is the id of the store.
	Carrier func(cluster string) (Carrier, error)
	// AllowUnsafe accepts a PostgreSQL server that loses acknowledged commits in a crash. For
	// tests.
	AllowUnsafe bool
	// Serves says that the node is part of a server. Such a node refuses a store that a server
	// cannot rely on.
	Serves bool
	// Production refuses settings that are only good enough for development.
	Production bool
	// Private refuses a file that other users of the machine own or can replace.
	Private    bool
	Log        *slog.Logger
	Version    string
	Lanes      int
	LeaseTTL   time.Duration
	Retention  time.Duration // how long closed executions are kept; default 30 days
	MaxPayload int           // bytes of an input or output; default 2 MiB
	MaxHistory int           // bytes of the history of a run; default 50 MiB
	// MaxUnread bounds the bytes that wait for the code of a run. Default 16 MiB, or a third of
	// MaxHistory if that is less.
	MaxUnread  int
	MaxLoaded  int // bytes of histories in memory; default 256 MiB
	RetainDead time.Duration
	// RetainRequest is how long request ids are remembered. Default and minimum 24 h.
	RetainRequest time.Duration
	// RetainAudit is how long the audit log keeps its entries. A negative time keeps them forever.
	// 0 removes no entries either, because another process may want to keep them for longer. A
	// server replaces 0 by its default.
	RetainAudit time.Duration
	// Caller is the caller that the audit log records for calls that come from this process itself
	// instead of over a connection. It is nil for programs with an embedded store, whose calls the
	// log does not record.
	Caller *authn.Call
	Lane   lane.Config
	// Series counts what becomes durable in each tenant, for the last hour.
	Series bool
	// Meter counts events, and Tracer creates spans. Both may be nil.
	Meter  *telemetry.Meter
	Tracer *tracing.Tracer
	// FileSystem returns the name of the network file system of a directory, or an empty text for a
	// local directory. Nil asks the operating system. For tests.
	FileSystem func(dir string) string
	// Wrap wraps the store, for example to inject faults. For tests.
	Wrap func(store.Store) store.Store
}

// Carrier carries hints between nodes, outside the database, and changes to subscribers. It may
// lose hints and changes, because nodes can always read the store.
type Carrier interface {
	notify.Hub

	// Changed publishes changes that are durable. It must not block, and must not keep the slice.
	Changed(changes []model.Change)
	// Close ends the connection.
	Close() error
}

// Node is a running node.
type Node struct {
	store   store.Store
	engine  *engine.Engine
	service *service.Service
	audit   *audit.Log // nil if the store is open for reading only
	records bool       // whether calls of Backend and Admin go to the audit log
	hints   closer
	carrier Carrier            // nil without one
	peers   *peerlink.Endpoint // nil if other nodes cannot connect
	unwatch func()             // ends the service's reports to the meter
	stop    context.CancelFunc
	done    chan error
}

type closer interface{ Close() error }

// OpenStore opens the store that a URL names.
func OpenStore(ctx context.Context, cfg Config) (store.Store, error) {
	scheme, _, ok := strings.Cut(cfg.URL, ":")
	if !ok {
		return nil, unknownURL(cfg.URL)
	}
	if err := cfg.checkDatabases(); err != nil {
		return nil, err
	}

	switch scheme {
	case "memory":
		return memory.New(memory.Options{Shards: cfg.Shards}), nil
	case "file":
		c, err := sqlite.ParseURL(cfg.URL)
		if err != nil {
			return nil, err
		}
		if cfg.Shards != 0 {
			c.Shards = cfg.Shards
		}
		c.ReadOnly, c.Logger = c.ReadOnly || cfg.ReadOnly, cfg.Log
		c.Private, c.FileSystem = cfg.Private, cfg.FileSystem
		return sqlite.Open(ctx, c)
	case "postgres", "postgresql":
		return openPostgres(ctx, &cfg)
	}

	return nil, unknownURL(cfg.URL)
}

func unknownURL(url string) error {
	scheme, _, _ := strings.Cut(url, ":")
	return fault.WithHint(fault.New(fault.Invalid, "store URL of scheme %q is not known", scheme),
		"use memory:, file:<path> or postgres://user@host/database")
}

// longestRequest bounds how long request ids are remembered, because each of them is a row in the
// store.
const longestRequest = 366 * 24 * time.Hour

// aheadWait is lane.Config.AheadWait. Most operations of entities take a few microseconds, and a
// commit takes a tenth of a millisecond or more.
const aheadWait = 200 * time.Microsecond

// How long the audit log keeps entries: the default of servers, and the shortest time.
const (
	DefaultRetainAudit = 90 * 24 * time.Hour
	LeastRetainAudit   = 24 * time.Hour
)

// check refuses impossible settings before anything is opened.
func (cfg *Config) check() error {
	switch {
	case cfg.Retention != 0 && cfg.Retention < model.MinRetention:
		return fault.New(fault.Invalid, "a retention time of %s: at least %s", cfg.Retention, model.MinRetention)
	case cfg.RetainRequest != 0 && cfg.RetainRequest < engine.LeastRetainRequest:
		return fault.New(fault.Invalid, "request ids remembered for %s: at least %s, because messages of transactions may be repeated for that long", cfg.RetainRequest, engine.LeastRetainRequest)
	case cfg.RetainAudit > 0 && cfg.RetainAudit < LeastRetainAudit:
		return fault.New(fault.Invalid, "an audit log that keeps entries for %s: at least %s", cfg.RetainAudit, LeastRetainAudit)
	case cfg.RetainRequest > longestRequest:
		return fault.New(fault.Invalid, "request ids remembered for %s: at most %s", cfg.RetainRequest, longestRequest)
	case cfg.LeaseTTL < 0 || cfg.LeaseTTL > cluster.Longest:
		// Until the lease ends, no node takes over from a dead process.
		return fault.New(fault.Invalid, "the lease is %s, must be at most %s and not negative", cfg.LeaseTTL, cluster.Longest)
	case cfg.Shards < 0 || cfg.Shards > model.MaxShards:
		return fault.New(fault.Invalid, "%d shards: at least 1 and at most %d", cfg.Shards, model.MaxShards)
	case cfg.PeerListen != "" && !isAddress(cfg.PeerListen):
		return fault.New(fault.Invalid, "the address for other nodes is %q, must be host:port or :port", cfg.PeerListen)
	case cfg.PeerAdvertise != "" && !isReachable(cfg.PeerAdvertise):
		return fault.New(fault.Invalid, "the address that other nodes connect to is %q, must be host:port", cfg.PeerAdvertise)
	case cfg.Weight < 0 || cfg.Weight > cluster.MaxWeight:
		return fault.New(fault.Invalid, "the weight of the node is %d, must be at least 1 and at most %d", cfg.Weight, cluster.MaxWeight)
	case cfg.MaxPayload < 0:
		return fault.New(fault.Invalid, "the limit of payloads is %d bytes, must be >= 0", cfg.MaxPayload)
	case cfg.MaxHistory < 0 || cfg.MaxUnread < 0:
		return fault.New(fault.Invalid, "the limit of histories is %d bytes, of unread events %d bytes; both must be >= 0", cfg.MaxHistory, cfg.MaxUnread)
	case cfg.MaxLoaded < 0:
		return fault.New(fault.Invalid, "the limit of histories in memory is %d bytes, must be >= 0", cfg.MaxLoaded)
	case cfg.MaxUnread > cfg.limits().Bytes/2:
		return fault.New(fault.Invalid, "%d bytes may wait for the code of a run: at most half of its history of %d bytes, because the next run starts with them", cfg.MaxUnread, cfg.limits().Bytes)
	}

	if err := cfg.checkGroupNames(); err != nil {
		return err
	}
	return cfg.checkAlone()
}

// checkAlone refuses settings of a cluster for a server whose store only one process can open. With
// such settings the operator expects several servers to share the work, but only the first one
// could start.
func (cfg *Config) checkAlone() error {
	if scheme, _, _ := strings.Cut(cfg.URL, ":"); !cfg.Serves || scheme != "file" && scheme != "memory" {
		return nil
	}
	var given []string
	for name, set := range map[string]bool{
		"--peer-listen": cfg.PeerListen != "", "--peer-advertise": cfg.PeerAdvertise != "", "--weight": cfg.Weight != 0 && cfg.Weight != cluster.DefaultWeight,
		"--groups": len(cfg.Groups) > 1 || len(cfg.Groups) == 1 && cfg.Groups[0] != model.DefaultGroup,
	} {
		if set {
			given = append(given, name)
		}
	}
	if len(given) == 0 {
		return nil
	}
	slices.Sort(given)
	return fault.WithHint(fault.New(fault.Invalid, "%s: only one server can use the store %s", strings.Join(given, ", "), cfg.URL),
		"remove what is for several servers, or use a PostgreSQL store")
}

// limits returns the limits of one run.
func (cfg *Config) limits() core.Limits {
	lim := core.DefaultLimits
	lim.Bytes = cmp.Or(cfg.MaxHistory, lim.Bytes)
	lim.Unread = cmp.Or(cfg.MaxUnread, min(lim.Unread, lim.Bytes/3))
	return lim
}

// Open opens a node and waits until it serves.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	st, err := OpenStore(ctx, cfg)
	if err != nil {
		return nil, err
	}

	n := &Node{store: st}
	if cfg.ReadOnly {
		n.service = service.New(nil, st, service.Limits{})
		n.askAsReader(cfg)
		return n, nil
	}

	if err := cfg.checkGroups(st.Info()); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	if cfg.Wrap != nil {
		n.store = cfg.Wrap(st)
	}
	if cfg.Serves {
		if err := cfg.checkStore(ctx, st, n.store); err != nil {
			return nil, errors.Join(err, st.Close())
		}
	}
	hub, err := n.openHints(cfg, st)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	var changes feed.Config
	if cfg.Carrier != nil {
		if n.carrier, err = cfg.Carrier(st.Info().Cluster); err != nil {
			return nil, errors.Join(err, n.close())
		}
		changes.Tap = n.carrier.Changed
		hub = notify.Several{hub, n.carrier}
	}
	if n.peers, err = listenForPeers(ctx, &cfg, st); err != nil {
		return nil, errors.Join(err, n.close())
	}

	if cfg.MaxLoaded != 0 {
		cfg.Lane.MaxHeld = cfg.MaxLoaded
	}

	// A commit in memory costs too little to wait for.
	if _, isMemory := st.(*memory.Store); !isMemory && cfg.Lane.AheadWait == 0 {
		cfg.Lane.AheadWait = aheadWait
	}

	n.engine = engine.New(engine.Config{
		Store: n.store, Hints: hub, Peers: n.peers, Log: cfg.Log, Version: cfg.Version, Lanes: cfg.Lanes, LeaseTTL: cfg.LeaseTTL, Lane: cfg.Lane, Weight: cfg.Weight, Groups: cfg.Groups,
		Guest: cfg.Guest && st.Info().Shared, Retention: cfg.Retention, RetainDead: cfg.RetainDead, RetainRequest: cfg.RetainRequest, RetainAudit: cfg.RetainAudit,
		Meter: cfg.Meter, Tracer: cfg.Tracer, Series: cfg.Series, Limits: cfg.limits(), Feed: changes,
	})

	n.service = service.New(n.engine, n.store, service.Limits{Payload: cfg.MaxPayload})
	n.service.Trace(cfg.Tracer)
	n.audit, n.records = audit.New(audit.Config{Store: n.store, Log: cfg.Log, Caller: cfg.Caller}), cfg.Caller != nil
	n.service.AskBy(n.engine.Ask)
	n.service.AskQueuesBy(n.engine.AskQueues)
	n.service.AskSeriesBy(n.engine.AskSeries)
	n.unwatch = n.service.Observe(cfg.Meter)
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop, n.done = stop, make(chan error, 1)
	go func() { n.done <- n.engine.Run(run) }()

	return n, n.waitReady(ctx)
}

// openHints connects the node with its peers, if it can have any.
func (n *Node) openHints(cfg Config, st store.Store) (notify.Hub, error) {
	if !st.Info().Shared {
		return notify.NoHub{}, nil
	}
	hub, err := notifypg.Open(notifypg.Config{URL: cfg.URL, Schema: cfg.Schema, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	n.hints = hub
	return hub, nil
}

// askAsReader lets a process that only reads the store ask the nodes. It opens the connection for
// hints only at the first question, because most commands never ask one.
func (n *Node) askAsReader(cfg Config) {
	hub := sync.OnceValues(func() (notify.Hub, error) { return n.openHints(cfg, n.store) })
	n.service.AskBy(func(ctx context.Context, owner model.NodeID, all []model.Address) (map[model.Address][]model.Reason, error) {
		hints, err := hub()
		if err != nil {
			return nil, err
		}
		return peer.Asker{Mail: n.store, Hints: hints}.Ask(ctx, owner, all)
	})
	n.service.AskQueuesBy(func(ctx context.Context, node model.NodeID) ([]peer.QueueCount, error) {
		hints, err := hub()
		if err != nil {
			return nil, err
		}
		return peer.Asker{Mail: n.store, Hints: hints}.AskQueues(ctx, node)
	})
	n.service.AskSeriesBy(func(ctx context.Context, node model.NodeID, q series.Question) (series.Counts, error) {
		hints, err := hub()
		if err != nil {
			return series.Counts{}, err
		}
		return peer.Asker{Mail: n.store, Hints: hints}.AskSeries(ctx, node, q)
	})
}

// waitReady waits until the engine serves, has failed, or ctx ends.
func (n *Node) waitReady(ctx context.Context) error {
	ready := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ready <- n.engine.Ready(ctx) }()
	var err error
	select {
	case err = <-ready:
	case failed := <-n.done:
		n.done <- failed
		err = failed
	}
	if err != nil {
		return errors.Join(err, n.Close())
	}
	return nil
}

// Serving returns why the node cannot serve at the moment, or nil if it can.
func (n *Node) Serving() error {
	if n.engine == nil {
		return fault.New(fault.Denied, "the store is open for reading only")
	}
	return n.engine.Serving()
}

// Backend returns the interface that the SDK and all entry points use.
func (n *Node) Backend() api.Backend {
	if n.records {
		return n.audit.Backend(n.service)
	}
	return n.service
}

// Admin returns the calls of operators. The tenant home exists even if the store has no record of
// it.
func (n *Node) Admin(home string) api.Admin {
	if n.records {
		return n.audit.Admin(n.service.Admin(home))
	}
	return n.service.Admin(home)
}

// Audit returns the log of administrative actions; nil if the store is open for reading only.
func (n *Node) Audit() *audit.Log { return n.audit }

// Store returns the open store, for commands that need more than the API.
func (n *Node) Store() store.Store { return n.store }

// Stopping tells the node that Close follows when the workers have left. From now on the node does
// not wait for a store that accepts no writes.
func (n *Node) Stopping() {
	if n.engine != nil {
		n.engine.PrepareStop()
	}
}

// Close drains the engine, writes the last commits, frees everything, and then closes the store.
func (n *Node) Close() error {
	var err error
	if n.unwatch != nil {
		n.unwatch()
	}
	if n.audit != nil {
		n.audit.Close()
	}
	if n.stop != nil {
		n.stop()
		err = <-n.done
		n.done <- nil // a second Close finds the engine stopped
	}
	return errors.Join(err, n.close())
}

// close frees everything except the engine.
func (n *Node) close() (err error) {
	if n.peers != nil {
		err = n.peers.Close()
	}
	if n.hints != nil {
		err = errors.Join(err, n.hints.Close())
	}
	if n.carrier != nil {
		err = errors.Join(err, n.carrier.Close())
	}
	return errors.Join(err, n.store.Close())
}
