// Package tricky has right programs that look wrong, and unusual syntax. Nothing is found in it.
package tricky

import (
	"bytes"
	stdctx "context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	. "github.com/perdure/perdure"
)

var (
	pattern  = regexp.MustCompile(`^o-\d+$`)
	compiled = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("x") })
	errStop  = errors.New("stop")
	table    = map[string]int{"a": 1}
	Charge   = NewActivity("charge", func(ctx stdctx.Context, n int) (int, error) { return n, ctx.Err() })
	Ship     = NewWorkflow("ship", ship)
	flag     string
)

func init() { flag = os.Getenv("FLAG") }

type Order struct {
	ID    string
	Items []string
	Due   time.Time
}

func ship(ctx WorkflowCtx, o Order) (string, error) {
	if !pattern.MatchString(o.ID) || compiled().MatchString(flag) {
		return "", errStop
	}
	b, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	var buf bytes.Buffer
	fmt.Fprintf(&buf, "%s", b)
	sort.Strings(o.Items)
	slices.SortFunc(o.Items, strings.Compare)
	if o.Due.Before(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) || table[o.ID] > 0 {
		return http.StatusText(http.StatusGone), os.ErrNotExist
	}
	if _, err := io.WriteString(&buf, "x"); err != nil {
		return "", err
	}
	audit(ctx.Log(), o)
outer:
	for i := range 3 {
		for {
			switch err := ctx.WithTimeout(time.Second).Sleep(time.Hour); {
			case errors.Is(err, ErrTimeout), errors.Is(err, stdctx.DeadlineExceeded):
				break outer
			case err != nil:
				return "", err
			}
			if i > 1 {
				continue outer
			}
		}
	}
	for n := range numbers(3) {
		if _, err := Charge.Run(ctx, n); err != nil {
			return "", err
		}
	}
	return buf.String(), nil
}

func audit(log *slog.Logger, o Order) { log.Info("order", "id", o.ID) }

func numbers(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// A generic helper.
func each[T any](ctx WorkflowCtx, in []T, a *Activity[T, int]) (sum int, err error) {
	for _, v := range in {
		n, err := a.Run(ctx, v)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func sumAll(ctx WorkflowCtx, in []int) (int, error) { return each(ctx, in, Charge) }

// A helper for workflows and ordinary programs alike.
func both(c Caller, o Order) (string, error) { return Ship.Run(c, o) }

func caller(ctx WorkflowCtx, o Order) (string, error) { return both(ctx, o) }

// Dependencies of activities.
type shop struct {
	db     map[string]int
	mu     sync.Mutex
	client *http.Client
	now    func() time.Time
}

func (s *shop) charge(ctx stdctx.Context, id string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db[id]++
	fmt.Println("charged", s.now(), time.Now())
	_, err := s.client.Get("https://example.com")
	return s.db[id], err
}

func (s *shop) definitions() Group {
	calls := 0
	pay := DeclareActivity[string, int]("pay")
	run := DeclareWorkflow[Order, int]("run")
	return Group{
		pay.Bind(s.charge),
		run.Bind(func(ctx WorkflowCtx, o Order) (int, error) {
			var once sync.Once
			total := 0
			once.Do(func() { total++ })
			visit := func(id string) (err error) {
				n, err := pay.Run(ctx, id)
				total += n
				return err
			}
			for _, i := range o.Items {
				if err := visit(i); err != nil {
					return 0, err
				}
			}
			return Do(ctx, "count", func(stdctx.Context) (int, error) {
				calls++ // not of the workflow
				return calls, nil
			})
		}),
		NewActivity("elsewhere", func(ctx stdctx.Context, _ int) (int, error) {
			ch := make(chan int)
			go func() { ch <- 1 }()
			select {
			case n := <-ch:
				return n, nil
			case <-time.After(time.Second):
				return 0, errStop
			}
		}),
	}
}

// A recursive closure.
func recursive(ctx WorkflowCtx, depth int) (int, error) {
	var walk func(int) error
	walk = func(d int) error {
		if d == 0 {
			return nil
		}
		if _, err := Charge.Run(ctx, d); err != nil {
			return err
		}
		return walk(d - 1)
	}
	return depth, walk(depth)
}

// Steps that are made by functions, methods, and tables.
func (s *shop) table(ctx WorkflowCtx, id string) (n int, err error) {
	steps := map[string]func(stdctx.Context, string) (int, error){"charge": s.charge}
	step := steps["charge"]
	return Do(ctx, "table", func(c stdctx.Context) (int, error) { return step(c, id) })
}

func parts() (WorkflowCtx, string, func(stdctx.Context) (int, error)) { panic("never called") }

func spread() (int, error) { return Do(parts()) }
