package access_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/telemetry"
)

// values returns the values of one metric, by their labels.
func values(m *telemetry.Meter, id telemetry.ID) map[string]float64 {
	all := map[string]float64{}
	m.Gather(func(s telemetry.Sample) {
		if s.ID == id {
			all[strings.Join(s.Labels, " ")] = s.Value + float64(s.Count)
		}
	})
	return all
}

// A request is open until it ends. After that, the journal counts it with its code, its time, and
// the reason if it was refused.
func TestJournalCounts(t *testing.T) {
	t.Parallel()
	m := telemetry.New()
	j := access.New(access.Config{Meter: m})
	v := j.Begin(access.GRPC, "ClientService/Start")
	if got := values(m, telemetry.DoorOpen); got["grpc ClientService/Start"] != 1 {
		t.Errorf("open: %v", got)
	}
	v.End(t.Context(), access.Outcome{Code: "OK"})
	j.Refuse(t.Context(), access.REST, access.Unknown, access.OfHTTP(401))
	v = j.Begin(access.REST, "start-execution")
	v.End(t.Context(), access.OfHTTP(422))

	for id, want := range map[telemetry.ID]map[string]float64{
		telemetry.DoorOpen:     {"grpc ClientService/Start": 0, "rest start-execution": 0},
		telemetry.DoorRequests: {"grpc ClientService/Start OK": 1, "rest _other 401": 1, "rest start-execution 422": 1},
		telemetry.DoorSeconds:  {"grpc ClientService/Start": 1, "rest start-execution": 1},
		telemetry.DoorRefusals: {"rest unauthenticated": 1, "rest invalid": 1},
	} {
		got := values(m, id)
		for labels, n := range want {
			if v, ok := got[labels]; !ok || v != n {
				t.Errorf("%s: %v, want %v", telemetry.Families()[id].Name, got, want)
			}
		}
	}

	j.Close()
	if got := values(m, telemetry.DoorOpen); len(got) > 0 {
		t.Errorf("a closed journal reports %v", got)
	}
	var none *access.Journal
	v = none.Begin(access.GRPC, "x")
	v.End(t.Context(), access.Outcome{})
	none.Refuse(t.Context(), access.GRPC, "x", access.Outcome{})
	none.Close()
}

// The log has a sample of the successful requests, and every failed request up to a limit per
// second. It says how many failed requests it left out.
func TestJournalLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		j := access.New(access.Config{Log: slog.New(slog.NewTextHandler(&text, nil)), Every: 10})
		ask := func(n int, o access.Outcome) int {
			t.Helper()
			text.Reset()
			for range n {
				v := j.Begin(access.GRPC, "ClientService/Start")
				v.End(t.Context(), o)
			}
			return strings.Count(text.String(), "msg=request")
		}

		if n := ask(100, access.Outcome{Code: "OK"}); n != 10 {
			t.Errorf("100 successes have %d lines", n)
		}
		refused := access.Outcome{Code: "PermissionDenied", Failed: true, Refused: access.Denied, Tenant: "acme", Caller: "key 1"}
		if n := ask(3, refused); n != 3 || !strings.Contains(text.String(), "refused=denied") || !strings.Contains(text.String(), "tenant=acme") {
			t.Errorf("3 failures have %d lines: %s", n, text.String())
		}
		if n := ask(1000, refused); n != 97 {
			t.Errorf("1,000 failures in a second have %d lines beside the first 3", n)
		}
		time.Sleep(time.Second)
		if n := ask(1, access.Outcome{Code: "Internal", Failed: true, Fault: true}); n != 1 || !strings.Contains(text.String(), "left_out=903") || !strings.Contains(text.String(), "level=ERROR") {
			t.Errorf("%d lines: %s", n, text.String())
		}
	})
}

// Without sampling, only requests that failed because of the server have a line.
func TestJournalIsQuiet(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	j := access.New(access.Config{Log: slog.New(slog.NewTextHandler(&text, nil))})
	for _, status := range []int{200, 401, 404, 503, 500} {
		v := j.Begin(access.REST, "x")
		v.End(t.Context(), access.OfHTTP(status))
	}
	if n := strings.Count(text.String(), "msg=request"); n != 1 || !strings.Contains(text.String(), "code=500") {
		t.Errorf("%d lines: %s", n, text.String())
	}
}
