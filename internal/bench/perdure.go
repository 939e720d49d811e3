package bench

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// perdureSystem is Perdure itself, used as anybody would.
type perdureSystem struct {
	app    *perdure.App
	three  *perdure.Workflow[int, int]
	chain  *perdure.Workflow[int, int]
	fanOut *perdure.Workflow[int, int]
	sleep  *perdure.Workflow[time.Duration, perdure.Void]
}

// openPerdure opens Perdure with its defaults.
func openPerdure(ctx context.Context, place Place, body func(int)) (System, error) {
	noop := perdure.NewActivity("noop", func(_ context.Context, in int) (int, error) { return in, nil })
	s := &perdureSystem{
		three: perdure.NewWorkflow("three", func(ctx perdure.WorkflowCtx, in int) (out int, err error) {
			for _, name := range [...]string{"first", "second", "third"} {
				if out, err = perdure.Do(ctx, name, func(context.Context) (int, error) { return in, nil }); err != nil {
					return 0, err
				}
			}
			return out, nil
		}),
		chain: perdure.NewWorkflow("chain", func(ctx perdure.WorkflowCtx, n int) (int, error) {
			for i := range n {
				step := func(context.Context) (int, error) { body(i); return i, nil }
				if _, err := perdure.Do(ctx, "step", step, perdure.StepKey(strconv.Itoa(i))); err != nil {
					return 0, err
				}
			}
			return n, nil
		}),
		fanOut: perdure.NewWorkflow("fan-out", func(ctx perdure.WorkflowCtx, n int) (int, error) {
			running := make([]*perdure.Future[int], n)
			for i := range n {
				running[i] = noop.Go(ctx, i)
			}
			_, err := perdure.All(ctx, running...)
			return n, err
		}),
		sleep: perdure.NewWorkflow("sleep", func(ctx perdure.WorkflowCtx, d time.Duration) (perdure.Void, error) {
			return perdure.Void{}, ctx.Sleep(d)
		}),
	}
	address := place.URL
	if place.Kind == SQLite {
		address = (&url.URL{Scheme: "file", Path: place.Path}).String()
	}
	var err error
	s.app, err = embedded.Open(ctx, address, s.three, s.chain, s.fanOut, s.sleep, noop)
	return s, err
}

// Three implements System.
func (s *perdureSystem) Three(ctx context.Context, key string) error {
	_, err := s.three.Run(s.app.With(ctx), 7, perdure.RawKey(key))
	return err
}

// Chain implements System.
func (s *perdureSystem) Chain(ctx context.Context, key string, n int) error {
	_, err := s.chain.Run(s.app.With(ctx), n, perdure.RawKey(key))
	return err
}

// FanOut implements System.
func (s *perdureSystem) FanOut(ctx context.Context, key string, n int) error {
	_, err := s.fanOut.Run(s.app.With(ctx), n, perdure.RawKey(key))
	return err
}

// StartSleep implements System.
func (s *perdureSystem) StartSleep(ctx context.Context, key string, d time.Duration) error {
	_, err := s.sleep.Start(s.app.With(ctx), d, perdure.RawKey(key))
	return err
}

// Close implements System.
func (s *perdureSystem) Close() error { return s.app.Close() }
