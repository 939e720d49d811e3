// Package access counts and logs the requests that a server answers: how many by method and code,
// how long they take, how many are open, and which ones the server refuses. All doors of a server
// (gRPC, REST, Flovyn) share one Journal.
//
// A journal never sees a payload, a key of an execution or a credential. The names of methods come
// from the lists of the doors. All other names that clients send are counted as one method,
// Unknown.
package access

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/telemetry"
)

// Doors of a server.
const (
	GRPC   = "grpc"
	REST   = "rest"
	Flovyn = "flovyn"
)

// Unknown is the method of requests whose method the door does not have.
const Unknown = telemetry.Other

// Reasons of refusals.
const (
	Unauthenticated = "unauthenticated"
	Denied          = "denied"
	Exhausted       = "exhausted"
	Invalid         = "invalid"
)

// mostErrorLines is how many failed requests the journal logs in one second at a level above Debug.
// A client whose requests fail again and again must not fill the disk.
const mostErrorLines = 100

// Config configures a journal. All fields may be zero.
type Config struct {
	Meter *telemetry.Meter
	Log   *slog.Logger
	// Every says which requests the journal logs. With n > 0, it logs one of n successful requests,
	// and all failed requests up to mostErrorLines. With 0, it logs only requests that failed
	// because of the server. A logger of the level Debug also gets all other requests, at that
	// level.
	Every int
}

// Journal counts and logs requests. A nil journal does nothing.
type Journal struct {
	cfg       Config
	every     atomic.Int64 // Config.Every, which may change
	succeeded atomic.Int64
	open      sync.Map // of *atomic.Int64 by method
	stop      func()

	mu      sync.Mutex
	second  int64 // the second of the last lines about failed requests
	lines   int   // how many lines in that second
	leftOut int   // how many lines were left out since the last line
}

// method is a method of a door.
type method struct{ door, name string }

// New returns a journal. Until Close, the meter asks the journal for the number of open requests.
func New(cfg Config) *Journal {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	j := &Journal{cfg: cfg}
	j.SetEvery(cfg.Every)
	j.stop = cfg.Meter.Watch(func(s *telemetry.States) {
		j.open.Range(func(key, n any) bool {
			m := key.(method)
			s.Set(telemetry.DoorOpen, float64(n.(*atomic.Int64).Load()), m.door, m.name)
			return true
		})
	})
	return j
}

// SetEvery changes which requests the journal logs; see Config.Every.
func (j *Journal) SetEvery(n int) { j.every.Store(int64(n)) }

// Close ends the reports to the meter.
func (j *Journal) Close() {
	if j != nil {
		j.stop()
	}
}

// Outcome is how a request ended.
type Outcome struct {
	// Code is the status of the reply in the form of the door: OK or NotFound, 200 or 404.
	Code string
	// Failed says that the request did not succeed. Fault says that the server caused that.
	Failed, Fault bool
	// Refused is the reason for which the door refused the request; empty if it did not.
	Refused string
	// Tenant and Caller say who made the request; empty if that is not known.
	Tenant, Caller string
}

// Visit is a request that the server has not answered yet.
type Visit struct {
	journal *Journal
	method  method
	begin   time.Time
	open    *atomic.Int64
}

// Begin counts a request as open until Visit.End.
func (j *Journal) Begin(door, name string) Visit {
	if j == nil {
		return Visit{}
	}
	m := method{door, name}
	n, ok := j.open.Load(m)
	if !ok {
		n, _ = j.open.LoadOrStore(m, new(atomic.Int64))
	}
	v := Visit{journal: j, method: m, begin: time.Now(), open: n.(*atomic.Int64)}
	v.open.Add(1)
	return v
}

// End counts a request with its outcome, and logs it if Config.Every selects it.
func (v *Visit) End(ctx context.Context, o Outcome) {
	if v.journal == nil {
		return
	}
	v.open.Add(-1)
	v.journal.count(ctx, v.method, o, time.Since(v.begin))
}

// Refuse counts a request that the door refused before Begin.
func (j *Journal) Refuse(ctx context.Context, door, name string, o Outcome) {
	if j != nil {
		j.count(ctx, method{door, name}, o, 0)
	}
}

func (j *Journal) count(ctx context.Context, m method, o Outcome, took time.Duration) {
	meter := j.cfg.Meter
	meter.Add(telemetry.DoorRequests, 1, m.door, m.name, o.Code)
	meter.Took(telemetry.DoorSeconds, took, m.door, m.name)
	if o.Refused != "" {
		meter.Add(telemetry.DoorRefusals, 1, m.door, o.Refused)
	}
	j.log(ctx, m, o, took)
}

// log writes a line about a request, if the settings select it. A line about a request that failed
// because of the server has the level Error.
func (j *Journal) log(ctx context.Context, m method, o Outcome, took time.Duration) {
	level, wanted, every := slog.LevelInfo, false, j.every.Load()
	switch {
	case o.Fault:
		level, wanted = slog.LevelError, true
	case o.Failed:
		wanted = every > 0
	case every > 0:
		wanted = j.succeeded.Add(1)%every == 0
	}
	if !wanted && !j.cfg.Log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	if !wanted {
		level = slog.LevelDebug
	}

	leftOut := 0
	if wanted && o.Failed {
		var room bool
		if leftOut, room = j.roomForError(time.Now()); !room {
			return
		}
	}
	attrs := []slog.Attr{
		slog.String("door", m.door), slog.String("method", m.name), slog.String("code", o.Code),
		slog.String("tenant", o.Tenant), slog.String("caller", o.Caller), slog.Duration("duration", took),
	}
	if o.Refused != "" {
		attrs = append(attrs, slog.String("refused", o.Refused))
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Int("left_out", leftOut))
	}
	j.cfg.Log.LogAttrs(ctx, level, "request", attrs...)
}

// roomForError reports whether the journal may write another line about a failed request in this
// second. leftOut is how many lines the journal has left out since it last wrote one.
func (j *Journal) roomForError(now time.Time) (leftOut int, room bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s := now.Unix(); s != j.second {
		j.second, j.lines = s, 0
	}
	if j.lines >= mostErrorLines {
		j.leftOut++
		return 0, false
	}
	j.lines++
	leftOut, j.leftOut = j.leftOut, 0
	return leftOut, true
}
