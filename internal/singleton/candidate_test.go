package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/singleton"
)

// world is a register behind a network that delays and loses requests and answers. It also records
// what the code of the candidates does.
type world struct {
	t *testing.T

	mu       sync.Mutex
	rand     *rand.Rand
	state    singleton.State
	faulty   bool
	newest   int64 // epoch of the newest candidate whose code has started
	acts     map[string]int
	position int
}

func newWorld(t *testing.T, seed uint64) *world {
	return &world{t: t, rand: rand.New(rand.NewPCG(seed, 1)), acts: map[string]int{}}
}

// delay draws the time that one message takes. A lost message never arrives.
func (w *world) delay() (d time.Duration, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.faulty {
		return time.Millisecond, false
	}
	switch n := w.rand.IntN(10); {
	case n < 6:
		return time.Duration(w.rand.IntN(100)) * time.Millisecond, false
	case n < 8:
		return time.Duration(w.rand.IntN(15_000)) * time.Millisecond, false
	default:
		return 0, true
	}
}

// travel waits until a message has arrived. It returns false if ctx ends first.
func (w *world) travel(ctx context.Context) bool {
	d, lost := w.delay()
	if lost {
		<-ctx.Done()
		return false
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

var errNet = errors.New("no answer")

func (w *world) Load(ctx context.Context) (singleton.State, error) {
	if !w.travel(ctx) {
		return singleton.State{}, errNet
	}
	w.mu.Lock()
	s := w.state
	w.mu.Unlock()
	if !w.travel(ctx) {
		return singleton.State{}, errNet
	}
	return s, nil
}

// Apply applies a command when it arrives, which may be after its sender has given up.
func (w *world) Apply(ctx context.Context, c *singleton.Command) (singleton.Answer, error) {
	cmd := *c
	answer := make(chan singleton.Answer, 1)
	if d, lost := w.delay(); !lost {
		go func() {
			time.Sleep(d)
			w.mu.Lock()
			a := singleton.Decide(w.state, &cmd)
			w.state = a.State
			w.mu.Unlock()
			answer <- a
		}()
	}

	select {
	case a := <-answer:
		if w.travel(ctx) {
			return a, nil
		}
	case <-ctx.Done():
	}
	return singleton.Answer{}, errNet
}

// body acts until its context ends. It fails the test if it acts after the code of a newer
// candidate has started, or if it does not find the last saved position.
func (w *world) body(name string) func(context.Context, *singleton.Tenure) error {
	return func(ctx context.Context, t *singleton.Tenure) error {
		w.mu.Lock()
		if t.Epoch() <= w.newest {
			w.t.Errorf("%s starts in epoch %d after epoch %d", name, t.Epoch(), w.newest)
		}
		w.newest = t.Epoch()
		saved := w.position
		w.mu.Unlock()
		at, _ := strconv.Atoi(string(t.Position().Data))
		if at < saved {
			w.t.Errorf("%s starts at %d, %d was saved", name, at, saved)
		}

		for ctx.Err() == nil {
			w.mu.Lock()
			if t.Epoch() < w.newest {
				w.t.Errorf("%s acts in epoch %d, epoch %d has started", name, t.Epoch(), w.newest)
			}
			w.acts[name]++
			w.mu.Unlock()

			if err := t.Save(ctx, model.Payload{Data: strconv.AppendInt(nil, int64(at+1), 10)}); err == nil {
				at++
				w.mu.Lock()
				w.position = max(w.position, at)
				w.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
		return nil
	}
}

func (w *world) candidate(name string) *singleton.Candidate {
	return singleton.New(singleton.Config{
		Name: "s", Register: w, ID: name, Lease: 10 * time.Second, Drain: time.Second, Body: w.body(name), Log: slog.New(slog.DiscardHandler),
	})
}

func (w *world) count(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acts[name]
}

func (w *world) holder() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.Holder
}

// Three candidates compete over a bad network, and two of them stop and start again. The code of
// two candidates never acts at the same time, and saved positions are never lost.
func TestCandidatesNeverOverlap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seed)
				w.faulty = true
				ctx, cancel := context.WithCancel(t.Context())
				var candidates sync.WaitGroup
				for i := range 3 {
					candidates.Go(func() {
						for n := 0; ctx.Err() == nil; n++ {
							life, stop := context.WithTimeout(ctx, time.Duration(20+40*i)*time.Second)
							w.candidate(fmt.Sprintf("r%d.%d", i, n)).Run(life)
							stop()
						}
					})
				}

				time.Sleep(10 * time.Minute)
				w.mu.Lock()
				w.faulty = false
				epoch := w.state.Epoch
				w.mu.Unlock()
				time.Sleep(time.Minute)
				if h := w.holder(); epoch < 5 || h == "" {
					t.Errorf("after %d epochs the candidate is %q", epoch, h)
				}
				cancel()
				candidates.Wait()
				time.Sleep(time.Minute) // messages that still travel
			})
		})
	}
}

// A candidate that stops releases the register, so that the next candidate starts immediately. A
// candidate that dies is replaced when its lease has run out, and not before.
func TestHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		first, stopFirst := context.WithCancel(t.Context())
		go w.candidate("first").Run(first)
		time.Sleep(time.Second)
		second, stopSecond := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { w.candidate("second").Run(second) })
		time.Sleep(time.Minute)
		if w.count("first") == 0 || w.count("second") != 0 {
			t.Fatalf("while the first candidate lives: %v", w.acts)
		}

		stopFirst()
		time.Sleep(1500 * time.Millisecond)
		if w.holder() != "second" || w.count("second") == 0 {
			t.Fatalf("after a release the candidate is %q: %v", w.holder(), w.acts)
		}

		// This candidate dies right after its claim.
		stopSecond()
		ended.Wait()
		w.state = singleton.Decide(w.state, &singleton.Command{Verb: singleton.VerbClaim, Candidate: "dead", Process: "dead process", Epoch: w.state.Epoch, Beat: w.state.Beat, Lease: 10 * time.Second}).State
		third, stopThird := context.WithCancel(t.Context())
		ended.Go(func() { w.candidate("third").Run(third) })
		time.Sleep(9500 * time.Millisecond)
		if w.count("third") != 0 {
			t.Error("the third candidate does not wait for the lease")
		}
		time.Sleep(2 * time.Second)
		if w.holder() != "third" || w.count("third") == 0 {
			t.Errorf("after the lease the candidate is %q: %v", w.holder(), w.acts)
		}
		stopThird()
		ended.Wait()

		// If a candidate is provably dead, another candidate replaces it immediately.
		w.state = singleton.Decide(w.state, &singleton.Command{Verb: singleton.VerbClaim, Candidate: "dead", Process: "dead process", Epoch: w.state.Epoch, Beat: w.state.Beat, Lease: 10 * time.Second}).State
		fourth, stopFourth := context.WithCancel(t.Context())
		r := singleton.New(singleton.Config{
			Name: "s", Register: w, ID: "fourth", Lease: 10 * time.Second, Body: w.body("fourth"), Log: slog.New(slog.DiscardHandler),
			Gone: func(p string) bool { return p == "dead process" },
		})
		ended.Go(func() { r.Run(fourth) })
		time.Sleep(100 * time.Millisecond)
		if w.holder() != "fourth" {
			t.Errorf("the candidate is %q, want the fourth", w.holder())
		}
		stopFourth()
		ended.Wait()
	})
}

// When renewals get no answer, the context of the code ends a fifth of the lease early. A late
// answer extends the lease from the time at which its renewal was sent. After the context has
// ended, a save fails.
func TestContextEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		late  []time.Duration // delays of the answers to the first renewals
		after time.Duration
	}{
		{"no answer", nil, 8 * time.Second},
		{"one late answer", []time.Duration{5 * time.Second}, 10500 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				type end struct {
					cause, save error
					after       time.Duration
				}

				ends := make(chan end, 1)
				r := singleton.New(singleton.Config{
					Name: "s", Register: &cable{Register: newWorld(t, 1), late: c.late}, ID: "a", Lease: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
					Body: func(ctx context.Context, tenure *singleton.Tenure) error {
						started := time.Now()
						<-ctx.Done()
						e := end{cause: context.Cause(ctx), after: time.Since(started)}
						e.save = tenure.Save(t.Context(), model.Payload{Data: []byte("1")})
						ends <- e
						return nil
					},
				})

				ctx, cancel := context.WithCancel(t.Context())
				var ended sync.WaitGroup
				ended.Go(func() { r.Run(ctx) })
				e := <-ends
				if !errors.Is(e.cause, singleton.ErrLost) || !errors.Is(e.save, singleton.ErrLost) || e.after.Round(100*time.Millisecond) != c.after {
					t.Errorf("the context ended after %s with %v, a save with %v; want %s", e.after, e.cause, e.save, c.after)
				}
				cancel()
				ended.Wait()
			})
		})
	}
}

// cable is a register that answers claims immediately and the first renewals late. It does not
// answer other requests.
type cable struct {
	singleton.Register
	late []time.Duration
}

func (c *cable) Apply(ctx context.Context, cmd *singleton.Command) (singleton.Answer, error) {
	switch {
	case cmd.Verb == singleton.VerbClaim:
		return c.Register.Apply(ctx, cmd)
	case cmd.Verb == singleton.VerbRenew && len(c.late) > 0:
		a, err := c.Register.Apply(ctx, cmd)
		time.Sleep(c.late[0])
		c.late = c.late[1:]
		return a, err
	default:
		<-ctx.Done()
		return singleton.Answer{}, errNet
	}
}

// Code that fails, panics or ends its goroutine starts again after a growing pause. Code that
// returns without an error starts again within its tenure.
func TestRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		var starts []time.Duration
		var epochs []int64
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		r := singleton.New(singleton.Config{
			Name: "s", Register: w, ID: "a", Lease: 10 * time.Second, Pause: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
			Body: func(_ context.Context, tenure *singleton.Tenure) error {
				starts, epochs = append(starts, time.Since(began).Round(time.Second)), append(epochs, tenure.Epoch())
				switch len(starts) {
				case 1:
					return errors.New("no")
				case 2:
					panic("no")
				case 3, 4:
					return nil
				default:
					cancel()
					return nil
				}
			},
		})

		r.Run(ctx)
		if got, want := fmt.Sprint(starts, epochs), "[0s 1s 3s 8s 13s] [1 2 3 3 3]"; got != want {
			t.Errorf("starts and epochs are %s, want %s", got, want)
		}
	})
}
