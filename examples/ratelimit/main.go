// Command ratelimit calls a service that allows five calls per second and breaks down for a while.
// A limit keeps the calls within that rate. A circuit breaker holds the calls back while the
// service is down, so that they use up no attempts.
//
//	go run ./examples/ratelimit [store URL]
//
// By default the store is in memory, so only the program itself can inspect the limit and the
// breaker. If you give a file or a PostgreSQL database, you can also inspect and change them from
// outside while the program runs:
//
//	go run ./examples/ratelimit file:ratelimit.db
//	perdure breaker list --store file:ratelimit.db
//	perdure limit set quota --rate 50/1s --store file:ratelimit.db
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// service simulates the service that the program calls. It is down for some calls, and counts all
// calls.
type service struct {
	out io.Writer

	mu    sync.Mutex
	calls int
	away  int // number of calls that fail, after the first ten
}

// quote asks the service for a price.
func (s *service) quote(_ context.Context, item int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.calls > 10 && s.away > 0 {
		s.away--
		fmt.Fprintf(s.out, "call %d: away\n", s.calls)
		return 0, errors.New("503 service unavailable")
	}
	return 100 + item, nil
}

func run(ctx context.Context, url string, s *service) error {
	quotes := perdure.NewActivity("quote", s.quote, perdure.OnQueue("quotes"), perdure.Limit("quota"), perdure.Breaker("quotes"),
		perdure.RetryPolicy{MaxAttempts: 3, Initial: 100 * time.Millisecond})
	app, err := embedded.Open(ctx, url, quotes)
	if err != nil {
		return err
	}
	defer app.Close()

	// Rules are stored. A program sets the rules that it needs. An operator can change them later,
	// while the program runs.
	if err := app.Limits().Set(ctx, perdure.LimitRule{Name: "quota", Concurrency: 4, Rate: 5, Period: time.Second}); err != nil {
		return err
	}
	if err := app.Breakers().SetRule(ctx, perdure.BreakerRule{Name: "quotes", Failures: 3, Reset: 5 * time.Second, Successes: 1}); err != nil {
		return err
	}

	c := app.With(ctx)
	items := make([]int, 40)
	for i := range items {
		items[i] = i
	}
	began := time.Now()
	tasks, err := quotes.SubmitMany(c, items)
	if err != nil {
		return err
	}

	total := 0
	for _, t := range tasks {
		price, err := t.Result(c)
		if err != nil {
			return err
		}
		total += price
	}

	breakers, err := app.Breakers().List(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%d prices, %d in all, after %d calls in %s; breaker %s is %s\n",
		len(tasks), total, s.calls, time.Since(began).Round(time.Second), breakers[0].Name, breakers[0].State)

	return nil
}

func main() {
	url := "memory:"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(context.Background(), url, &service{out: os.Stdout, away: 3}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
