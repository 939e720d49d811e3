package grpcapi_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/malformed"
)

// fuzzRounds is how many rounds of malformed calls a test makes. A round is a call of every method
// with random bytes, and one with a random message.
var fuzzRounds = flag.Int("rounds", 4, "rounds of malformed calls of every method")

// mostKept is how much memory the server may keep after all calls of a run.
const mostKept = 64 << 20

// FuzzCalls calls every method with bytes that are not a message, and with messages that have
// random contents. No call fails with an error that blames the server, and nothing panics.
func FuzzCalls(f *testing.F) {
	d := open(f, func(c *grpcapi.Config) { c.MaxMessage = 1 << 20 })
	calls := malformed.Calls{
		Conn: d.conn, Methods: malformed.Methods(pb.File_perdure_v1_client_proto, pb.File_perdure_v1_worker_proto, pb.File_perdure_v1_admin_proto), Wait: 20 * time.Millisecond, Words: malformed.Words,
	}
	before := malformed.Kept()
	for i := range *fuzzRounds {
		f.Add(uint64(i), []byte(strings.Repeat("\x0a\x05", i)))
	}

	f.Fuzz(func(t *testing.T, seed uint64, raw []byte) {
		calls.Round(d.ctx, t, seed, raw)
		if strings.Contains(d.log.String(), "panicked") {
			t.Fatalf("a handler panicked:\n%s", d.log)
		}
	})
	f.Cleanup(func() {
		if after := malformed.Kept(); after > before+mostKept {
			f.Errorf("the server keeps %d MiB, and %d MiB before the calls", after>>20, before>>20)
		}
	})
}
