package sim

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	seedCount   = flag.Int("seeds", 0, "number of seeds to simulate; 6,000, or 100 under the race detector")
	firstSeed   = flag.Uint64("seed", 1, "first seed")
	seedStep    = flag.Uint64("step", 1, "from one seed to the next: in -seed=5 -step=6 there are tasks, limits and breakers")
	maxFailures = flag.Int64("failures", 10, "number of failed seeds after which to stop")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *seedCount == 0 {
		*seedCount = 6000
		if underRace {
			*seedCount = 100
		}
	}
	// Many short lives, and nothing that stays: collect when there is much to collect.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)
	goleak.VerifyTestMain(m)
}

// TestSeeds simulates many seeds and demands that no promise is broken in any of them, and that everything has happened in some.
func TestSeeds(t *testing.T) {
	if text := os.Getenv("SIM_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(seed, Options{Trace: true, Calm: os.Getenv("SIM_CALM") != ""})
		t.Logf("seed %d, hash %016x\n%s", seed, r.Hash, r.Trace)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		return
	}
	began := time.Now()
	stats, fold, failed := runSeeds(t, *firstSeed, *seedCount)
	took := time.Since(began)
	t.Logf("%d seeds in %v: %.0f per second, %.1f faults and %.0f events each; all traces fold to %016x",
		stats.Seeds, took.Round(time.Millisecond), float64(stats.Seeds)/took.Seconds(),
		float64(stats.Faults())/float64(stats.Seeds), float64(stats.Events)/float64(stats.Seeds), fold)
	if failed > 0 {
		t.Fatalf("%d of %d seeds failed", failed, *seedCount)
	}
	if testing.Verbose() {
		t.Log(stats.String())
	}
	if stats.Faults() < 50*stats.Seeds {
		t.Errorf("%d faults in %d seeds are fewer than 50 each", stats.Faults(), stats.Seeds)
	}
	if *seedCount >= 2500 && *seedStep == 1 {
		for _, name := range stats.Missing() {
			t.Errorf("%s never happened", name)
		}
	}
}

// again is which of the seeds are run a second time, to see whether the same happens.
const again = 50

// runSeeds simulates seeds on all cores. Besides the statistics it returns one number for all
// traces, so that two builds can be compared over many seeds, and the number of failed seeds.
func runSeeds(t *testing.T, first uint64, n int) (stats Stats, fold uint64, failures int) {
	t.Helper()
	var (
		next, failed atomic.Int64
		mu           sync.Mutex
		wg           sync.WaitGroup
	)

	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			var mine Stats
			var folded uint64
			for {
				i := next.Add(1) - 1
				if i >= int64(n) || failed.Load() >= *maxFailures {
					break
				}
				seed := first + uint64(i)**seedStep
				r, err := Run(seed, Options{})
				if err != nil {
					if failed.Add(1) <= *maxFailures {
						t.Errorf("seed %d: %v\n  SIM_SEED=%d go test ./internal/sim -run TestSeeds -v", seed, err, seed)
					}
					continue
				}
				mine.Add(&r.Stats)
				folded += r.Hash // a sum, because the seeds end in any order
				if i%again == 0 {
					if second, err := Run(seed, Options{}); err != nil || second.Hash != r.Hash || second.Stats != r.Stats {
						failed.Add(1)
						t.Errorf("seed %d: hash %016x, then %016x, %v", seed, r.Hash, second.Hash, err)
					}
				}
			}
			mu.Lock()
			stats.Add(&mine)
			fold += folded
			mu.Unlock()
		})
	}
	wg.Wait()
	return stats, fold, int(failed.Load())
}

// fewer seeds are enough under the race detector.
func fewer(n uint64) uint64 {
	if underRace {
		return n / 10
	}
	return n
}

// TestKnownSeeds simulates those again that have found something.
func TestKnownSeeds(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{
		3237,    // a fork on a node whose clock is behind that of the node which the past was made by: time went back
		346,     // a report was written for a shard that had been freed
		649,     // a report of a task that was terminated was told that it counts
		2974,    // a task was forgotten when a proposal for it came too late
		4309,    // a time-out was decided, undone, and applied again although the worker had been heard meanwhile
		4690,    // the claim of a worker that had left was given back to a lane that did not own it any more
		29356,   // a run was read while it was quarantined, and its task proposed in vain
		30985,   // a worker left before its report was settled, and another node waited for it
		51103,   // a run that was imported with its end had open tasks
		126049,  // a run was handed over with the history of the one that was terminated before it
		600595,  // a shard moved with the claim of a worker that had left, which nobody could write, and its next owner waited for it for ever
		185,     // a node wanted permits on a page, and did not know of it
		1937,    // a node whose life had ended wrote what it knew over a page that others had written since
		3029,    // a probe passed a breaker that its node knew to be open again
		3899,    // a breaker had no probe to give, and who waited for one was never told
		4973,    // a claim was made for a task that had left the board since, and come back
		12821,   // a body ran on, and its permit was taken for one of the next attempt
		16313,   // a claim that was undone was made again without its permit
		4385,    // a time-out could not be written and was undone, and the body that went on was counted by nobody
		28235,   // the same, and the run moved meanwhile
		3054177, // a run was paused when its worker let it go and a back-off ended, and nobody went on with it after that
	} {
		if _, err := Run(seed, Options{Plain: true}); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestKnownSeedsOfLending simulates those again that have found something about lent slots.
func TestKnownSeedsOfLending(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{
		496,   // a claim came after its poll was answered, and the board of the worker did not hear of the slot that it took
		16,    // news of a claim that had ended was never told, and its owner was polled without a pause
		10090, // a report was taken as told because a heartbeat of its claim was
		4948,  // a shard went and came back while a claim was on its way, and its owner believed for ever that a worker had it
		20194, // a worker left while a slot of it stayed lent
		42658, // a node forgot an owner because of an old view, and numbered its polls from 1 again: the owner dropped them
	} {
		if _, err := Run(seed, Options{}); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestKnownSeedsOfHardships simulates those again that have found something while a fault lasted.
func TestKnownSeedsOfHardships(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{
		5296,  // the simulated clock of a node kept the time of the machine
		6384,  // the oracle took a request that was refused twice for one with two answers
		4971,  // the oracle believed calls of an entity to be durable that the node had undone
		15542, // a lane did nothing but put off a flood, and a neighbour starved
		23572, // deadlines of two tasks met in each batch, and the store refused one
		16406, // a node that had stood still during a small jump fenced a live one
		899,   // a claim was handed over whose time was up, and its permit had gone to the next
		28654, // the claim of a task met the claim of a poisoned one in each batch
		12865, // a run was overlooked because of a start that was refused
		55346, // the oracle knew only the last jump of the clock, and a node had joined after the one before
		70794, // the oracle did not see a one-way delete of which the batch held only the request id
		88703, // a time-out was undone, and the claim was handed over although another task had its permit
		39485, // a node took the page of a dead one, which had no tokens left, and did not wake the tasks that waited for them
	} {
		if _, err := Run(seed, Options{}); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestCalm simulates without any fault.
func TestCalm(t *testing.T) {
	t.Parallel()
	for seed := range fewer(300) {
		if _, err := Run(seed, Options{Calm: true}); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestSameSeedSameTrace runs seeds with and without a readable trace, which must not change them.
// TestSeeds runs every 50th of its seeds twice, because chance, such as the order of a map, must not
// change them either.
func TestSameSeedSameTrace(t *testing.T) {
	t.Parallel()
	for seed := range fewer(30) {
		first, err1 := Run(seed, Options{})
		second, err2 := Run(seed, Options{Trace: true})
		if first.Hash != second.Hash || (err1 == nil) != (err2 == nil) || first.Stats != second.Stats {
			t.Errorf("seed %d: hash %016x, then %016x", seed, first.Hash, second.Hash)
		}
	}
}

// TestSeedsDiffer checks that the hash sees something.
func TestSeedsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[uint64]uint64{}
	for seed := range fewer(20) {
		r, err := Run(seed, Options{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if other, ok := seen[r.Hash]; ok {
			t.Errorf("seeds %d and %d have the same trace", other, seed)
		}
		seen[r.Hash] = seed
	}
}
