package archtest

import (
	"path"
	"slices"
	"strings"
)

// room is a row of the table: a package, or a family of packages, and what it may use.
type room struct {
	// path is relative to the module; "." is its root. A path that ends in "/..." means the package
	// and all packages below it.
	path string
	// imports are the packages of this module that production code may import, as patterns like
	// path.
	imports []string
	// except are packages that production code must not import although they match imports.
	except []string
	// testing is for packages whose purpose is testing: they may import the standard testing
	// packages.
	testing bool
	// public means that the exported surface of the package is recorded in testdata/surface.
	public bool
}

// generated is the code that the protocol compiler writes.
const generated = "api/perdure/..."

// Abbreviations of the table.
var (
	// vocabulary is what most rooms may use.
	vocabulary = []string{"internal/model", "internal/fault"}
	// simulated is the production code that the simulator runs or refers to.
	simulated = join(vocabulary, "internal/core/...", "internal/cluster", "internal/engine/...", "internal/history", "internal/store", "internal/store/memory")
	// testOnly are the rooms that no released binary contains.
	testOnly = []string{
		"internal/archtest", "internal/chaos/...", "internal/corpus", "internal/crash", "internal/crashwalk", "internal/dialtest", "internal/e2e", "internal/malformed", "internal/mutants/...", "internal/peerlink/lan", "internal/pgproxy", "internal/pgtest", "internal/sim/...",
		"internal/store/faultstore", "internal/store/storetest", "internal/tenanttest", "internal/txtest", "internal/wrong",
	}
)

// rooms is the table of docs/architecture.md, with the imports that each room may have. The most
// specific row for a package applies. Change docs/architecture.md together with this table.
var rooms = []room{
	// Vocabulary: ids, events, commands, statuses, policies; error kinds. Values only.
	{path: "internal/model"},
	{path: "internal/fault"},
	{path: "internal/spelling"},
	{path: "internal/heap"},

	// Decisions of the engine, without a clock, randomness, goroutines and I/O (see pure).
	{path: "internal/core/...", imports: vocabulary},
	// Which limits and which breaker apply to a task.
	{path: "internal/core/rule", imports: join(vocabulary, "internal/core/breaker", "internal/core/limit")},

	// Histories as files, and how to cut a history.
	{path: "internal/history", imports: join(vocabulary, "internal/api")},

	// How a command makes another program replay histories.
	{path: "internal/deploy", imports: []string{"internal/fault"}},

	// When something that repeats is due; pure (see pure).
	{path: "internal/cadence", imports: []string{"internal/fault"}},
	// Schedules, which are executions that start others: their decisions, their code, and the
	// requests to them.
	{path: "internal/schedule", imports: join(vocabulary, "internal/api", "internal/cadence", "internal/replay")},

	// Executions that make one call of an entity later.
	{path: "internal/delayed", imports: join(vocabulary, "internal/api", "internal/replay", "internal/schedule")},
	// Code that runs in one process at a time: the register that names the process, and the
	// candidates.
	{path: "internal/singleton", imports: join(vocabulary, "internal/api", "internal/entity", "internal/episode", "internal/replay", "internal/schedule")},

	// Executions that apply one verb to all executions that a query selects.
	{path: "internal/batchjob", imports: join(vocabulary, "internal/api", "internal/batch", "internal/query", "internal/replay")},

	// Failures that repeat, logged as episodes.
	{path: "internal/episode", imports: []string{"internal/model"}},
	// Whether a connection pooler shares server connections between transactions.
	{path: "internal/pooler"},

	// The port to the database and its adapters.
	{path: "internal/store", imports: vocabulary},
	{path: "internal/store/postgres/...", imports: join(vocabulary, "internal/pooler", "internal/store", "internal/store/postgres/...")},
	{path: "internal/store/sqlite/...", imports: join(vocabulary, "internal/episode", "internal/store", "internal/store/sqlite/...")},
	{path: "internal/store/memory", imports: join(vocabulary, "internal/store")},
	// Several stores as one: each shard group lives in one of them.
	{path: "internal/store/partitioned", imports: join(vocabulary, "internal/store")},
	// The conformance suite compares every store with the memory store.
	{path: "internal/store/storetest", imports: join(vocabulary, "internal/store", "internal/store/memory"), testing: true},
	{path: "internal/store/faultstore", imports: join(vocabulary, "internal/store"), testing: true},

	// Wake-up hints between nodes, which may get lost.
	{path: "internal/notify", imports: []string{"internal/model"}},
	{path: "internal/notify/postgres", imports: []string{"internal/episode", "internal/model", "internal/notify", "internal/pooler"}},
	{path: "internal/notify/nats", imports: join(vocabulary, "internal/episode", "internal/notify")},

	// Direct connections between nodes.
	{path: "internal/peerlink", imports: vocabulary},
	{path: "internal/peerlink/lan"},

	// Membership, leases, and which node should own which shards.
	{path: "internal/cluster", imports: join(vocabulary, "internal/store", "internal/notify", "internal/cluster/...", generated)},
	{path: "internal/cluster/host", imports: join(vocabulary, "internal/store")},

	// The node. Each of its lanes has a loop: load, decide, commit, effects.
	{
		path: "internal/engine",
		imports: join(
			vocabulary, "internal/core/...", "internal/store", "internal/cluster/...", "internal/notify", "internal/peerlink", "internal/engine/lane", "internal/engine/queue", "internal/engine/gate", "internal/engine/ledger", "internal/engine/feed", "internal/engine/replies", "internal/engine/flow", "internal/engine/peer", "internal/engine/series", "internal/engine/crew", "internal/engine/lending", "internal/engine/loan", "internal/engine/storeclock",
			"internal/episode", "internal/telemetry", "internal/telemetry/tracing",
		),
	},
	{path: "internal/engine/lane", imports: join(vocabulary, "internal/core/...", "internal/engine/queue", "internal/store")},
	// Who executes which task next.
	{path: "internal/engine/queue", imports: vocabulary},
	// How two nodes talk to each other.
	{path: "internal/engine/peer", imports: join(vocabulary, "internal/engine/series", "internal/store", "internal/notify")},
	// What was counted in the last hour.
	{path: "internal/engine/series", imports: vocabulary},
	// How workers of one node execute tasks of another node: the state machines, and the code that
	// runs them.
	{path: "internal/engine/loan", imports: join(vocabulary, "internal/engine/peer", "internal/engine/queue", "internal/store")},
	{path: "internal/engine/lending", imports: join(vocabulary, "internal/engine/loan", "internal/engine/peer", "internal/engine/queue", "internal/store")},
	// How workers of one node run code for another node, with the protocol of remote workers.
	{path: "internal/engine/crew", imports: join(vocabulary, "internal/link", "internal/store", "internal/wire", generated)},
	// The recent changes, for callers that watch.
	{path: "internal/engine/feed", imports: vocabulary},
	// The streams of views.
	{path: "internal/engine/replies", imports: vocabulary},
	// A node's estimate of the store's time.
	{path: "internal/engine/storeclock", imports: vocabulary},
	// Limits and breakers of a node, which hold tasks back, and how nodes share limits.
	{path: "internal/engine/gate", imports: join(vocabulary, "internal/core/breaker", "internal/core/limit", "internal/core/rule")},
	{path: "internal/engine/ledger", imports: join(vocabulary, "internal/core/limit", "internal/core/rule", "internal/engine/gate")},
	// The settings for tasks, and how nodes agree on them.
	{path: "internal/engine/flow", imports: join(vocabulary, "internal/core/breaker", "internal/core/limit", "internal/core/rule", "internal/engine/gate", "internal/engine/ledger", "internal/engine/queue", "internal/episode", "internal/store")},

	// Why an open execution does not continue; pure (see pure).
	{path: "internal/diagnosis", imports: join(vocabulary, "internal/core", "internal/store")},

	// What clients and workers may request, as Go values; one method per operation; authentication
	// and authorization.
	{path: "internal/api", imports: join(vocabulary, "internal/core/limit", "internal/core/rule")},
	// The language that selects executions, and one operation on all selected executions.
	{path: "internal/query", imports: join(vocabulary, "internal/api")},
	{path: "internal/batch", imports: join(vocabulary, "internal/api")},
	// The rules for requests, and the messages that they become.
	{path: "internal/request", imports: join(vocabulary, "internal/api")},
	{path: "internal/service", imports: join(vocabulary, "internal/api", "internal/batch", "internal/query", "internal/request", "internal/cluster", "internal/core/...", "internal/diagnosis", "internal/engine", "internal/engine/flow", "internal/engine/gate", "internal/engine/peer", "internal/engine/series", "internal/history", "internal/spelling", "internal/store", "internal/audit", "internal/authn", "internal/authz", "internal/telemetry", "internal/telemetry/tracing")},
	// The record of administrative actions.
	{path: "internal/audit", imports: join(vocabulary, "internal/api", "internal/authn", "internal/authz", "internal/store")},
	{path: "internal/authn", imports: vocabulary},
	// Signed tokens of identity providers, which only servers read.
	{path: "internal/authn/jwt", imports: join(vocabulary, "internal/authn")},
	{path: "internal/authz", imports: join(vocabulary, "internal/authn")},
	// The decisions of the Cedar policy engine, which only servers link.
	{path: "internal/authz/policy", imports: join(vocabulary, "internal/authn", "internal/authz")},

	// Thin adapters for protocols, without rules of their own. Package wire translates between
	// protocol messages and our values.
	{path: "internal/wire", imports: join(vocabulary, "internal/api", generated)},
	// Numbered frames over streams that break.
	{path: "internal/link", imports: []string{"internal/fault"}},
	// Many calls on one stream.
	{path: "internal/bundle"},
	// The caller's side of streams of entities.
	{path: "internal/streamread", imports: join(vocabulary, "internal/api")},
	{path: "internal/pooled"},
	{path: "internal/access", imports: []string{"internal/telemetry"}},
	{path: "internal/grpcapi", imports: join(vocabulary, "internal/access", "internal/api", "internal/authn", "internal/authz", "internal/bundle", "internal/link", "internal/pooled", "internal/wire", "internal/telemetry", generated)},
	{path: "internal/flovyn/...", imports: join(vocabulary, "internal/access", "internal/api", "internal/authn", "internal/authz", "internal/wire", "internal/telemetry", "internal/flovyn/...", "api/flovyn/...")},
	{path: "internal/restapi", imports: join(vocabulary, "internal/access", "internal/api", "internal/authn", "internal/authz", "internal/core/rule", "internal/query", "internal/history", "internal/schedule", "internal/streamread")},
	{path: "internal/console"},
	// The page that shows the document of an HTTP API.
	{path: "internal/apidocs"},

	// Commands; configuration, loaded and validated once; logger, meter, tracer, and the names they
	// use.
	{
		path: "internal/cli",
		imports: join(
			vocabulary, "internal/api", "internal/heap", "internal/streamread", "internal/history", "internal/query", "internal/spelling", "internal/batch", "internal/batchjob", "internal/cadence", "internal/schedule", "internal/config", "internal/deploy", "internal/console", "internal/authn", "internal/authn/jwt", "internal/authz", "internal/authz/policy", "internal/restapi", "internal/flovyn", "internal/apidocs", "internal/node", "internal/notify/nats", "internal/remote", "internal/telemetry", "internal/telemetry/otlp", "internal/telemetry/prom", "internal/telemetry/tracing", generated,
			".",                  // keys are hashed as in programs
			"internal/attach",    // stress runs its own program
			"internal/core/rule", // rates are parsed as in rules
			"internal/store",     // doctor shows a view of the store that node has read
			"internal/bench",
		),
	},
	{path: "internal/config", imports: vocabulary},
	{path: "internal/telemetry", imports: vocabulary},
	{path: "internal/telemetry/prom", imports: []string{"internal/fault", "internal/telemetry"}},
	// The exporters of OpenTelemetry, which only the command line links.
	{path: "internal/telemetry/otlp", imports: []string{"internal/fault", "internal/telemetry"}},
	{path: "internal/telemetry/tracing", imports: []string{"internal/model"}},

	// The SDK's side: deterministic coroutines, the matching of steps with the history, and the
	// client of a remote server.
	{path: "internal/replay", imports: join(vocabulary, "internal/api", "internal/episode", "internal/telemetry", "internal/telemetry/tracing")},
	// The worker's side of queues, which executes tasks.
	{path: "internal/pool", imports: join(vocabulary, "internal/api", "internal/episode", "internal/replay", "internal/telemetry", "internal/telemetry/tracing")},
	// The worker's side of entities and services, which executes their calls.
	{path: "internal/entity", imports: join(vocabulary, "internal/api", "internal/replay")},
	{path: "internal/remote", imports: join(vocabulary, "internal/api", "internal/bundle", "internal/link", "internal/request", "internal/wire", generated)},

	// Restores the order of messages from outside senders, in the state of an entity.
	{path: "sorter", imports: []string{"internal/fault"}, public: true},
	// How payloads are stored. Compressors and clients of object stores are packages of their own,
	// which only their users link.
	{path: "payload", public: true},
	{path: "payload/zstd", imports: []string{"payload"}, public: true},
	{path: "payload/s3", imports: []string{"payload"}, public: true},
	{path: "internal/codec", imports: join(vocabulary, "payload")},

	// The public API. The root package never links a store, an engine, a service or a node, so a
	// remote worker stays small.
	{
		path: ".",
		imports: join(
			vocabulary, "internal/attach/seam", "internal/streamread", "internal/replay", "internal/pool", "internal/entity", "internal/episode", "internal/api", "internal/history", "internal/query", "internal/batch", "internal/batchjob", "internal/remote", "internal/codec", "internal/delayed", "internal/schedule", "internal/singleton",
			"internal/userdb", "internal/telemetry", "internal/telemetry/tracing", "payload",
		),
		public: true,
	},
	// How package embedded and tests make an App without a public constructor, and where the root
	// package stores that constructor.
	{path: "internal/attach", imports: []string{".", "internal/attach/seam"}},
	{path: "internal/attach/seam", imports: []string{"internal/api", "internal/replay", "internal/telemetry", "internal/telemetry/tracing", "payload"}},
	// Metrics of an app that uses a server. Only its users link the client library of Prometheus.
	{path: "prom", imports: []string{".", "internal/fault", "internal/telemetry", "internal/telemetry/prom"}, public: true},
	{path: "embedded", imports: []string{".", "internal/attach", "internal/model", "internal/node", "internal/codec", "internal/deploy", "internal/telemetry/...", "payload"}, except: []string{"internal/telemetry/otlp"}, public: true},
	// Users' tests run on the real engine and the memory store, in processes that can die, and look
	// into the store for their reports.
	{
		path: "perduretest",
		imports: join(
			vocabulary, ".", "internal/attach", "internal/crash", "internal/engine", "internal/engine/lane", "internal/replay", "internal/store", "internal/store/faultstore",
			"internal/store/memory", "payload",
		),
		testing: true, public: true,
	},
	// Our tables in databases of the user. The package uses databases only through an interface, so
	// it links no driver.
	{path: "internal/userdb", imports: vocabulary},
	{path: "perdurevet", public: true},
	{path: "api/perdure/...", imports: []string{generated}},
	{path: "api/flovyn/...", imports: []string{"api/flovyn/..."}},

	// Wiring and lifecycle: the only room that knows all others.
	{path: "internal/node", imports: []string{"internal/...", generated}, except: join(testOnly, "internal/cli", "internal/authn/jwt", "internal/authz/policy", "internal/restapi", "internal/apidocs")},

	// Programs.
	{path: "cmd/perdure", imports: []string{"internal/cli"}},
	{path: "cmd/perdurevet", imports: []string{"perdurevet"}},
	{path: "scripts/tally"},
	{path: "examples/...", imports: []string{generated, ".", "embedded", "payload/...", "perduretest", "prom", "examples/..."}},

	// Tests and measurements.
	{path: "internal/archtest", testing: true},
	{path: "internal/bench/...", imports: []string{".", "embedded", "internal/..."}, except: join(testOnly, "internal/cli")},
	{path: "internal/chaos", testing: true},
	// A program that the test of two releases builds with both, so it uses only the public API.
	{path: "internal/chaos/mixed", imports: []string{"."}},
	{path: "internal/crash", imports: join(vocabulary, ".", "internal/attach", "internal/engine", "internal/service", "internal/store", "internal/store/faultstore"), testing: true},
	{path: "internal/corpus", testing: true},
	{path: "internal/crashwalk", testing: true},
	{path: "internal/e2e", testing: true},
	{path: "internal/malformed", testing: true},
	{path: "internal/mutants/...", imports: []string{"internal/..."}, testing: true},
	{path: "internal/pgproxy", testing: true},
	{path: "internal/pgtest", testing: true},
	// The simulator, from the bottom to the top. The kernel imports only ids.
	{path: "internal/sim/kernel", imports: []string{"internal/model"}, testing: true},
	{path: "internal/sim/scenario", imports: join(simulated, "internal/sim/kernel"), testing: true},
	{path: "internal/sim/oracle", imports: join(simulated, "internal/sim/kernel", "internal/sim/scenario"), testing: true},
	{path: "internal/sim/disk", imports: join(simulated, "internal/sim/kernel", "internal/sim/scenario", "internal/sim/oracle"), testing: true},
	{path: "internal/sim/worker", imports: join(simulated, "internal/sim/kernel", "internal/sim/scenario", "internal/sim/oracle"), testing: true},
	{path: "internal/sim/cluster", imports: join(simulated, "internal/sim/kernel", "internal/sim/scenario", "internal/sim/oracle", "internal/sim/disk", "internal/sim/worker"), testing: true},
	{path: "internal/sim/workload", imports: join(simulated, "internal/sim/kernel", "internal/sim/scenario", "internal/sim/oracle", "internal/sim/disk", "internal/sim/worker", "internal/sim/cluster"), testing: true},
	{path: "internal/sim", imports: []string{"internal/sim/..."}, testing: true},
	{path: "internal/dialtest", imports: []string{".", "internal/api", "internal/attach", "internal/authn", "internal/batchjob", "internal/codec", "internal/grpcapi", "internal/delayed", "internal/schedule", "internal/singleton"}, testing: true},
	{path: "internal/tenanttest", imports: join(vocabulary, ".", "internal/api", "internal/attach", "internal/core/rule", "internal/history"), testing: true},
	{path: "internal/wrong", testing: true},
	{path: "internal/txtest", testing: true},
}

// pure are the packages that get time and randomness as inputs and have no effect except their
// results. So the simulator can run the same code as production.
var pure = []string{"internal/core/...", "internal/engine/lane/...", "internal/engine/queue", "internal/engine/gate", "internal/engine/ledger", "internal/engine/loan", "internal/cluster", "internal/cadence", "internal/diagnosis", "internal/engine/storeclock"}

// pureThirdParty are the libraries that pure packages may use: they compute and do nothing else.
var pureThirdParty = []string{"github.com/cespare/xxhash/v2", "github.com/fxamacker/cbor/v2", "github.com/netresearch/go-cron"}

// maxTypes is the budget of exported types in the root package. A third of them describe schedules,
// dead tasks, limits and breakers to operators, and thirteen are groups of verbs, such as
// app.Breakers(). docs/architecture.md says why they are in the root package.
const maxTypes = 111

// roomOf returns the most specific row for a package.
func roomOf(rooms []room, dir string) (room, bool) {
	best, found := room{}, false
	for _, r := range rooms {
		if matches(r.path, dir) && (!found || specificity(r.path) > specificity(best.path)) {
			best, found = r, true
		}
	}
	return best, found
}

// allows reports whether production code of the room may import a package of ours.
func (r room) allows(dir string) bool {
	return matchesAny(r.imports, dir) && !matchesAny(r.except, dir)
}

// matches reports whether a pattern matches a package.
func matches(pattern, dir string) bool {
	if parent, family := strings.CutSuffix(pattern, "/..."); family {
		return dir == parent || strings.HasPrefix(dir, parent+"/")
	}
	return dir == pattern
}

func matchesAny(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, dir) })
}

// specificity orders patterns that match the same package. A pattern with a longer path is more
// specific. Of two patterns with the same path, the exact one is more specific.
func specificity(pattern string) int {
	parent, family := strings.CutSuffix(path.Clean(pattern), "/...")
	if family {
		return 2 * len(parent)
	}
	return 2*len(parent) + 1
}

// join returns a new list with further patterns.
func join(patterns []string, more ...string) []string { return slices.Concat(patterns, more) }
