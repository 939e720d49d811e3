package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// TestMain lets the test binary run as its own child, and as a program that prints its version.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("bench.test 1.2.3\nand more")
		return
	}
	if IsChild() {
		if err := Child(context.Background(), map[string]Peer{"fake": fakePeer}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// short runs workloads with real parts: Perdure, stores and child processes. All must succeed.
func short(t *testing.T, place Provider, peers map[string]Peer, workloads ...Workload) *Store {
	t.Helper()
	report, err := Run(t.Context(), Options{
		Places: []Provider{place}, Peers: peers, Workloads: workloads, Rounds: 1, Duration: 200 * time.Millisecond, Clients: 8, Tasks: 500,
		Progress: func(line string) { t.Log(line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := report.Stores[0]
	if len(s.Errors) > 0 {
		t.Fatalf("%q", s.Errors)
	}
	return s
}

func TestRunMeasuresPerdure(t *testing.T) {
	t.Parallel()
	places := map[Kind]func(*testing.T) Provider{
		SQLite: func(t *testing.T) Provider { return Directory(t.TempDir()) },
		Postgres: func(t *testing.T) Provider {
			return Server(pgtest.Start(t, pgtest.Options{Fsync: true}).URL("postgres"))
		},
	}
	for kind, place := range places {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := short(t, place(t), map[string]Peer{Bare: BarePeer}, Throughput, TwoCalls, Transfers, FanOut, Tasks, Limited, Pickup)
			if l := s.Limits; s.Sync.Commits == 0 || l.Single.Commits == 0 || l.Fenced.Commits == 0 || l.Batched.RowRate() <= l.Batched.Commits {
				t.Errorf("limits are %+v", l)
			}
			for _, r := range []Round{s.of(Perdure, Throughput)[0], s.of(Bare, Throughput)[0], s.of(Perdure, TwoCalls)[0], s.of(Perdure, Transfers)[0]} {
				u := r.Usage
				if u.Process <= 0 || u.Written <= 0 || u.Flushes <= 0 || u.Allocs <= 0 || u.RSS <= 0 || (kind == Postgres) != (u.Database > 0) {
					t.Errorf("usage of %s in %s is %+v", r.System, r.Workload, u)
				}
			}
			if r := s.of(Perdure, FanOut)[0]; r.P50 <= 0 {
				t.Errorf("fan-out took %s", r.P50)
			}

			for _, w := range []Workload{Tasks, Limited} {
				if r := s.of(Perdure, w)[0]; r.Operations != 500 || r.Repeated != 0 || r.Usage.Flushes <= 0 || (kind == Postgres) != (r.Usage.Rows >= 2) {
					t.Errorf("%s: %+v", w, r)
				}
			}

			if r := s.of(Perdure, Pickup)[0]; r.Operations == 0 || r.FromCall50 <= 0 {
				t.Errorf("pickup: %+v", r)
			}
		})
	}
}

// Behind a server, the processor times of the clients, the server and the worker are counted
// separately, and no task is lost or repeated.
func TestRunMeasuresServer(t *testing.T) {
	t.Parallel()
	s := short(t, Directory(t.TempDir()), map[string]Peer{Dial: DialPeer}, Throughput, Calls, Tasks)
	for _, w := range []Workload{Throughput, Calls, Tasks} {
		r := s.of(Dial, w)[0]
		if u := r.Usage; r.Operations == 0 || r.Repeated != 0 || u.Process <= 0 || u.Server <= 0 || u.Worker <= 0 || u.Written <= 0 {
			t.Errorf("%s: %+v", w, r)
		}
		if s.of(Perdure, w)[0].Operations == 0 {
			t.Errorf("%s: nothing in process", w)
		}
	}
	if rs := s.of(Perdure, Tasks); rs[0].Usage.Server != 0 {
		t.Errorf("in process: %+v", rs[0].Usage)
	}
}

func TestPeerWithACommandOfItsOwn(t *testing.T) {
	t.Parallel()
	answer := `{"System": "fake", "Workload": "tasks", "Operations": 7, "Elapsed": 1000000000}`
	report, err := Run(t.Context(), Options{
		Places: []Provider{Directory(t.TempDir())}, Workloads: []Workload{Tasks}, Rounds: 1, Tasks: 500,
		Peers: map[string]Peer{"fake": {Queue: openFakeQueue, Commands: map[Kind][]string{
			SQLite:   {"sh", "-c", "echo '" + answer + "'"},
			Postgres: {"false"},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}

	s := report.Stores[0]
	if len(s.Errors) > 0 {
		t.Fatalf("%q", s.Errors)
	}
	if ours, theirs := s.of(Perdure, Tasks)[0].Operations, s.of("fake", Tasks)[0].Operations; ours != 500 || theirs != 7 {
		t.Errorf("ours executed %d tasks and the peer's %d, want 500 in a child of this program and 7 in one of its own", ours, theirs)
	}
}

func TestRecoveryOfPerdureRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := short(t, Directory(t.TempDir()), nil, Recovery)
	if r := s.of(Perdure, Recovery)[0]; r.Repeated != 0 || r.FirstStep <= 0 {
		t.Errorf("%d finished steps ran again, first step after %s", r.Repeated, r.FirstStep)
	}
}

func TestOptionsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	if _, err := Run(t.Context(), Options{}); err == nil {
		t.Error("no store was accepted")
	}
	_, err := Run(t.Context(), Options{Places: []Provider{Directory(t.TempDir())}, Workloads: []Workload{"dance"}})
	if err == nil || !slices.Contains([]string{fmt.Sprintf("unknown workload %q; there are %v", "dance", Workloads)}, err.Error()) {
		t.Errorf("got %v", err)
	}
}
