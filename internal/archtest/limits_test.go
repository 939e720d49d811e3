package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// limits are the rows of docs/limits.md that name a number, and where the code has it. When one of
// them changes, so must the other.
var limits = []struct{ row, file, code string }{
	{"| bytes of an input, output, signal, promise, update, answer | 2 MiB |", "internal/request/validate.go", "l.Payload = 2 << 20"},
	{"| bytes of an input, output, signal, promise, update, answer | 2 MiB |", "attach.go", "cmp.Or(cfg.MaxPayload, 2<<20)"},
	{"state | 200 |", "internal/request/validate.go", "l.Name = 200"},
	{"state | 200 |", "name.go", "maxName = 200"},
	{"| bytes of a key | 512 |", "internal/request/validate.go", "l.Key = 512"},
	{"| bytes of a key | 512 |", "name.go", "maxKey  = 512"},
	{"| bytes of a request id | 200 |", "internal/request/validate.go", `v.Text("the request id", id, v.limits.Name)`},
	{"| starts of one call of `StartMany` or `SubmitMany` | 100,000 |", "internal/service/many.go", "MaxMany      = 100_000"},
	{"| bytes of the inputs of such a call | 64 MiB |", "internal/service/many.go", "MaxManyBytes = 64 << 20"},
	{"| starts of one call of `StartMany` or `SubmitMany` | 100,000 |", "internal/remote/streams.go", "maxMany      = 100_000"},
	{"| bytes of the inputs of such a call | 64 MiB |", "internal/remote/streams.go", "maxManyBytes = 64 << 20"},
	{"| events in the history of a run | 100,000 |", "internal/core/decision.go", "Events: 100_000"},
	{"| bytes of the history of a run | 50 MiB |", "internal/core/decision.go", "Bytes: 50 << 20"},
	{"of one run together | 16 MiB |", "internal/core/decision.go", "Unread: 16 << 20"},
	{"of its stack, and of a reason | 16 KiB |", "internal/model/cut.go", "MaxErrorText = 16 << 10"},
	{"of its stack, and of a reason | 16 KiB |", "internal/model/cut.go", "MaxReasonText = 16 << 10"},
	{"| reasons that an execution is stored with | 32 |", "internal/model/cut.go", "MaxReasons = 32"},
	{"| open timers of a run | 10,000 |", "internal/core/decision.go", "Timers: 10_000"},
	{"| open tasks of a run | 10,000 |", "internal/core/decision.go", "Tasks: 10_000"},
	{"| signals of one name that the code has not received | 10,000 |", "internal/core/decision.go", "Signals: 10_000"},
	{"| signals of all names together that the code has not received | half of the events of a history |", "internal/core/signals.go", "max(lim.Signals, int(lim.Events/2))"},
	{"| updates that were not answered | 10,000 |", "internal/core/message.go", "len(x.updates) >= lim.Signals"},
	{"| queries that were not answered, of one execution | 10,000 |", "internal/engine/lane/query.go", "len(e.queries) >= l.cfg.MaxBacklog"},
	{"| queries of executions that have ended | 2 at a time and 64 that wait, per process; 30 s each |", "internal/replay/recall.go", "maxRecalls       = 2 "},
	{"| queries of executions that have ended | 2 at a time and 64 that wait, per process; 30 s each |", "internal/replay/recall.go", "maxRecallsInLine = 64"},
	{"| queries of executions that have ended | 2 at a time and 64 that wait, per process; 30 s each |", "internal/replay/recall.go", "recallTimeout    = 30 * time.Second"},
	{"| bytes of the history that such a query replays | 64 MiB |", "history.go", "maxReplayed = 64 << 20"},
	{"| queries of other processes that were not answered, per lane | 250, of about 4 MiB |", "internal/engine/lane/mailroom.go", "const mailPage = 500"},
	{"and of a page of requests of other processes | 500, of about 4 MiB |", "internal/engine/lane/mail.go", "return l.cfg.MaxMail / 4"},
	{"| bytes of messages of other shards that wait in memory, per lane | 16 MiB, and one message more |", "internal/engine/lane/config.go", "set(&c.MaxMail, 16<<20)"},
	{"| bytes of requests that wait for a lane | 64 MiB, and one request more |", "internal/engine/engine.go", "c.InboxBytes = 64 << 20"},
	{"| states | 256 |", "internal/replay/state.go", "maxStates     = 256"},
	{"| bytes of all states together | 1 MiB |", "internal/replay/state.go", "maxStateBytes = 1 << 20"},
	{"| labels | 32 |", "internal/model/label.go", "MaxLabels = 32"},
	{"| bytes of the name of a label | 64 |", "internal/model/label.go", "MaxLabelName = 64"},
	{"| bytes of the value of a label | 256 |", "internal/model/label.go", "MaxLabelValue = 256"},
	{"fork, retry, reset, import | 10,000 |", "internal/core/decision.go", "Past: 10_000"},
	{"| bytes of these events | 16 MiB |", "internal/core/decision.go", "PastBytes: 16 << 20"},
	{"in one commit | 64, of about 4 MiB |", "internal/engine/lane/entity.go", "operationsPerHand = 64"},
	{"in one commit | 64, of about 4 MiB |", "internal/engine/lane/entity.go", "operationBytes = 4 << 20"},
	{"| bytes of the name of an entity or service | 192 |", "internal/request/validate.go", "v.limits.Name-len(model.ServicePrefix)"},
	{"| how long an operation or a view takes | 1 min |", "entityoption.go", "defaultOperationTimeout = time.Minute"},
	{"| how long a key without calls stays in memory | 1 min |", "internal/engine/lane/resting.go", "defaultEntityIdle = time.Minute"},
	{"| keys in memory without calls, per lane | 100,000 |", "internal/engine/lane/resting.go", "entityCacheEntries = 100_000"},
	{"| bytes of their states | 64 MiB |", "internal/engine/lane/resting.go", "entityCacheBytes = 64 << 20"},
	{"| bytes of the name of a tenant | 64 |", "internal/model/tenant.go", "MaxTenant = 64"},
	{"| `perdure tenant set --open`, at most 1,000,000,000 |", "internal/core/rule/allowance.go", "MaxOpen      = 1_000_000_000"},
	{"| `perdure tenant set --starts`, at most 1,000,000 |", "internal/core/rule/allowance.go", "MaxStarts    = 1_000_000"},
	{"| `perdure tenant set --weight`, at most 1,000 |", "internal/core/rule/allowance.go", "MaxWeight    = 1000"},
	{"| tenants that were created | 10,000 |", "internal/service/admin.go", "MaxTenants = 10_000"},
	{"| keys of one tenant, and admin keys | 1,000 |", "internal/service/admin.go", "MaxKeys = 1000"},
	{"| bytes of the note of a tenant or a key | 200 |", "internal/service/admin.go", "MaxNote = 200"},
	{"| watchers of a process | 1,000 |", "internal/engine/feed/hub.go", "DefaultWatchers       = 1_000"},
	{"| watchers of a tenant in a process | 100 |", "internal/engine/feed/hub.go", "DefaultTenantWatchers = 100"},
	{"| changes that are kept for the watchers of a tenant | 16,384 |", "internal/engine/feed/hub.go", "DefaultChanges = 16_384"},
	{"| bytes of these changes | 4 MiB |", "internal/engine/feed/hub.go", "DefaultBytes   = 4 << 20"},
	{"| bytes of these changes, of all tenants | 64 MiB |", "internal/engine/feed/hub.go", "DefaultTotal   = 64 << 20"},
	{"| how long changes are kept after the last watcher has left | 1 min |", "internal/engine/feed/hub.go", "DefaultLinger = time.Minute"},
	{"| types that a watch selects | 100 |", "internal/service/watch.go", "maxWatchedTypes = 100"},
	{"| bytes of one request | 8 times the limit of an input, 16 MiB by default |", "internal/grpcapi/server.go", "payloadsPerMessage = 8"},
	{"| bytes of one reply | 64 MiB |", "internal/grpcapi/server.go", "DefaultMaxReply = 64 << 20"},
	{"| bytes of the events of an imported history | 128 MiB |", "internal/grpcapi/clientstreams.go", "maxImport = 128 << 20"},
	{"| calls of one connection at a time | 10,000 |", "internal/grpcapi/server.go", "DefaultMaxStreams = 10_000"},
	{"| how long a call without a deadline looks for a server | 1 min |", "internal/remote/config.go", "defaultPatience = time.Minute"},
	{"| pings of a client | one in 10 s |", "internal/grpcapi/server.go", "leastPing = 10 * time.Second"},
	{"whether the client is there | 30 s | without an answer within 15 s", "internal/grpcapi/server.go", "silence = 30 * time.Second patience = 15 * time.Second"},
	{"400 ms longer", "internal/remote/call.go", "grace = 400 * time.Millisecond"},
	{"| shortest interval | 1 s |", "internal/cadence/cadence.go", "MinEvery = time.Second"},
	{"as it is stored | 256 KiB |", "internal/schedule/spec.go", "MaxInput = 256 << 10"},
	{"with `OverlapAllow` | 100 |", "internal/schedule/decide.go", "maxBurst = 100"},
	{"| ticks of one backfill | 1,000 |", "internal/schedule/spec.go", "MaxBackfill = 1000"},
	{"| backfills that have not ended | 10 |", "internal/schedule/spec.go", "MaxBackfills = 10"},
	{"whose end it awaits | 100 |", "internal/schedule/decide.go", "maxOpen = 100"},
	{"| requests that wait for one execution at a time | 10,000 |", "internal/engine/lane/config.go", "set(&c.MaxBacklog, 10_000)"},
	{"when more than 64 do | 5 s |", "internal/engine/lane/config.go", "setD(&c.MaxWait, 5*time.Second)"},
	{"when more than 64 do | 5 s |", "internal/engine/lane/config.go", "set(&c.PerKey, 64)"},
	{"when more than 64 do | 16 MiB |", "internal/engine/lane/crowd.go", "e.waitingBytes() >= l.cfg.MaxBytes/4"},
	{"| executions in memory | 10,000 |", "internal/replay/worker.go", "c.MaxLoaded = 10_000"},
	{"| bytes of their histories | 256 MiB |", "internal/engine/lane/config.go", "set(&c.MaxHeld, 256<<20)"},
	{"per lane | 8, of about 4 MiB,", "internal/engine/reads.go", "openReads = 8"},
	{"per lane | 8, of about 4 MiB,", "internal/engine/reads.go", "eventPageBytes = 4 << 20"},
	{"| bytes of calls that wait in memory for entities, per lane | 64 MiB |", "internal/engine/lane/makeroom.go", "l.budget.calls+m.Size() <= l.cfg.MaxBytes"},
	{"| how long an execution that waits stays in memory | 5 s |", "internal/replay/worker.go", "orDuration(&c.IdleAfter, 5*time.Second)"},
	{"| bodies of steps that run at the same time | 1,024 |", "internal/replay/worker.go", "c.MaxSteps = 1024"},
	{"| tasks that run at the same time | 100 |", "internal/pool/pool.go", "cfg.Slots = 100"},
	{"A task has at most 8 limits", "internal/model/task.go", "MaxTaskLimits = 8"},
	{"a priority and a weight of at most 1,000,000", "internal/model/task.go", "MaxPriority = 1_000_000"},
	{"times of at most 100\nyears", "internal/model/task.go", "MaxTaskTime = 100 * 365 * 24 * time.Hour"},
	{"a heartbeat time-out of at least 100 ms", "internal/model/task.go", "MinSilence = 100 * time.Millisecond"},
	{"| states of a task | 256 |", "internal/model/taskdata.go", "MaxTaskStates = 256"},
	{"| bytes of all states of a task, with their names | 1 MiB |", "internal/model/taskdata.go", "MaxTaskStateBytes = 1 << 20"},
	{"| bytes of a log line | 8 KiB |", "internal/model/taskdata.go", "MaxLogLine = 8 << 10"},
	{"| lines that a task logs, over all attempts | 10,000 |", "internal/model/taskdata.go", "MaxLogLines = 10_000"},
	{"| bytes of a streamed value | 64 KiB |", "internal/model/taskdata.go", "MaxStreamItem = 64 << 10"},
	{"| streamed items that are kept, per task | 4,096 |", "internal/model/taskdata.go", "KeptStreamItems = 4096"},
	{"| items of one write of a worker | 256 |", "internal/model/taskdata.go", "MaxTaskItems = 256"},
	{"wait for the engine | 1,024, or 1 MiB |", "internal/pool/notes.go", "mostItems = 1024"},
	{"| workers in a row that die while they execute a task | 3 |", "internal/core/task.go", "maxLost = 3"},
	{"| failed attempts of a task that are kept with it | 100 |", "internal/core/task.go", "keptAttempts = 100"},
	{"| bytes of the name of an entity or service | 192 |", "entity.go", "const maxCallee = maxName - len(model.ServicePrefix)"},
	{"requests of locks that wait for one key | 10,000 |", "internal/engine/lane/entity.go", "defaultMailbox     = 10_000"},
	{"| bytes of the mailbox of one key | 16 MiB |", "internal/core/entity.go", "const MailboxBytes = 16 << 20"},
	{"| entities that one section may lock | 100 |", "internal/model/entity.go", "const MaxLocks = 100"},
	{"| messages that one operation sends | 10,000 |", "internal/entity/call.go", "const MaxMessages = 10_000"},
	{"| keys whose calls run at the same time in a process | 128 |", "internal/entity/worker.go", "cfg.Slots = 128"},
	{"limits and breakers together | 1,000 |", "internal/core/rule/set.go", "MaxRules = 1000"},
	{"| bytes of the name of a rule, and of a selector | 128 |", "internal/core/rule/rule.go", "MaxName = 128"},
	{"| concurrency, rate, burst | 1,000,000 |", "internal/core/limit/numbers.go", "MaxConcurrency = 1_000_000"},
	{"| concurrency, rate, burst | 1,000,000 |", "internal/core/limit/numbers.go", "MaxRate = 1_000_000"},
	{"| period of a rate | 1 ms to 24 h |", "internal/core/limit/numbers.go", "MinPer = time.Millisecond"},
	{"| period of a rate | 1 ms to 24 h |", "internal/core/limit/numbers.go", "MaxPer = 24 * time.Hour"},
	{"| bytes of a key that is read from the input | 128 |", "internal/core/rule/path.go", "MaxKey = 128"},
	{"| bytes of an input in which a key is looked for | 1 MiB |", "internal/core/rule/path.go", "MaxInput = 1 << 20"},
	{"| failures that open a breaker, and its probes | 1,000 |", "internal/core/breaker/config.go", "MaxFailures = 1000"},
	{"| failures that open a breaker, and its probes | 1,000 |", "internal/core/breaker/config.go", "MaxProbes = 1000"},
	{"and waiting tasks | 20 |", "internal/engine/flow/uses.go", "maxUses = 20"},
	{"with the most waiting tasks | 1,000 |", "internal/engine/flow/uses.go", "maxKeys = 1000"},
	{"before it has answered | 1,000 |", "internal/engine/loan/creditor.go", "mostLent = 1000"},
	{"that wait to be sent | 4,096 |", "internal/engine/peer/peer.go", "mostWaiting = 4096"},
	{"| timers in memory, per lane | 50,000 |", "internal/engine/lane/config.go", "set(&c.TimerWindow, 50_000)"},
	{"that a metric keeps apart | 1,000 |", "internal/telemetry/meter.go", "maxSeries = 1000"},
	{"| how long a dead task is kept | 90 days |", "internal/engine/engine.go", "c.RetainDead = 90 * 24 * time.Hour"},
	{"tasks have logged are kept | 7 days |", "internal/engine/engine.go", "c.RetainLogs = 7 * 24 * time.Hour"},
	{"| bytes on their way to the store, per lane | 64 MiB |", "internal/engine/lane/config.go", "set(&c.MaxBytes, 64<<20)"},
	{"half of it for one | 128 MiB |", "internal/engine/lane/config.go", "set(&c.MaxKeptBytes, 128<<20)"},
	{"| bytes of one commit, and one input more | 4 MiB |", "internal/engine/lane/config.go", "set(&c.MaxBatchBytes, 4<<20)"},
	{"| how long `Close` waits for running steps | 10 s |", "attach.go", "cmp.Or(cfg.DrainTimeout, 10*time.Second)"},
	{"died on another machine | 10 s |", "internal/engine/engine.go", "c.LeaseTTL = 10 * time.Second"},
	{"kept after its end | 30 days |", "internal/engine/engine.go", "defaultRetention = 30 * 24 * time.Hour"},
	{"| how long the answer to a request id is remembered | 24 h |", "internal/engine/engine.go", "LeastRetainRequest = 24 * time.Hour"},
	{"engine's database | 30 days |", "internal/engine/engine.go", "c.RetainDeadLetter = defaultRetention"},
	{"| shards | 16 (SQLite), 64 (PostgreSQL);", "internal/store/sqlite/config.go", "defaultShards  = 16"},
	{"| shards | 16 (SQLite), 64 (PostgreSQL);", "internal/store/postgres/config.go", "DefaultShards   = 64"},
	{"at most 4,096 |", "internal/model/ids.go", "const MaxShards = 4096"},
	{"| 10 s after the last worker joined, at most 1 min |", "internal/node/server.go", "cmp.Or(cfg.Reunion, 10*time.Second)"},
	{"| 10 s after the last worker joined, at most 1 min |", "internal/engine/lane/reuniontime.go", "maxReunions = 6"},
	{"| pause between two attempts to connect | 2 s |", "internal/remote/config.go", "maxReconnect   = 2 * time.Second"},
}

func TestLimitsAreDocumentedAsTheyAre(t *testing.T) {
	t.Parallel()
	root, _ := docs(t)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	// alignment does not matter
	blanks := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	page := read("docs/limits.md")
	for _, l := range limits {
		if !strings.Contains(page, l.row) {
			t.Errorf("docs/limits.md has no row %q", l.row)
		}
		if !strings.Contains(blanks(read(l.file)), blanks(l.code)) {
			t.Errorf("docs/limits.md says %q, but %s does not have %q any more: change the page and this test with it", l.row, l.file, l.code)
		}
	}
}
