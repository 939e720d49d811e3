package pgtest

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// countedTemplate is a template that counts how often it was filled.
func countedTemplate(fills *atomic.Int64) *Template {
	return &Template{Fill: func(ctx context.Context, url string) error {
		fills.Add(1)
		return operator{url: url}.execute(ctx, "create table numbers as select * from generate_series(1, 10) n; analyze numbers")
	}}
}

func TestTemplateIsFilledOnceAndEveryTestHasACopy(t *testing.T) {
	t.Parallel()
	var fills atomic.Int64
	template := countedTemplate(&fills)

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			conn := connect(t, template.URL(t))
			// Each test has its own copy: changes of other tests are not visible.
			run(t, conn, "delete from numbers where n <= 3")
			if got := query[int64](t, conn, "select count(*) from numbers"); got != 7 {
				t.Errorf("%d rows, want 7", got)
			}
		})
	}

	wg.Wait()
	if n := fills.Load(); n != 1 && os.Getenv(EnvURL) == "" {
		t.Errorf("filled %d times", n)
	}
}

// not parallel: it sets the environment
func TestTemplateOnAnExternalServerIsFilledForEachTest(t *testing.T) {
	server := Start(t, Options{})
	t.Setenv(EnvURL, server.URL("postgres"))
	var fills atomic.Int64
	template := countedTemplate(&fills)

	t.Run("copies", func(t *testing.T) {
		for range 2 {
			if got := query[int64](t, connect(t, template.URL(t)), "select count(*) from numbers"); got != 10 {
				t.Errorf("%d rows, want 10", got)
			}
		}
	})

	if n := fills.Load(); n != 2 {
		t.Errorf("filled %d times, want twice", n)
	}
	if left := query[int64](t, connect(t, server.URL("postgres")), "select count(*) from pg_database where datname like 't%\\_%' and not datistemplate"); left != 0 {
		t.Errorf("%d databases were left behind", left)
	}
}

func TestTemplateThatCannotBeFilled(t *testing.T) {
	t.Parallel()
	server, err := sharedServer()
	if err != nil {
		t.Fatal(err)
	}
	tries, broken := 0, errors.New("no")
	template := &Template{Fill: func(context.Context, string) error { tries++; return broken }}
	for range 2 {
		if _, err := template.made.on(server, 1, template.fill); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	if tries != 1 {
		t.Errorf("tried %d times", tries)
	}
}

func TestPairIsFilledOnceAndEveryTestHasACopy(t *testing.T) {
	t.Parallel()
	var fills atomic.Int64
	pair := &Pair{Fill: func(ctx context.Context, first, second string) error {
		fills.Add(1)
		if err := (operator{url: first}).execute(ctx, "create table one as select 1 as n"); err != nil {
			return err
		}
		return operator{url: second}.execute(ctx, "create table two as select 2 as n")
	}}

	for range 2 {
		first, second := pair.URLs(t)
		if got := query[int32](t, connect(t, first), "delete from one returning n"); got != 1 {
			t.Errorf("the first database has %d", got)
		}
		if got := query[int32](t, connect(t, second), "delete from two returning n"); got != 2 {
			t.Errorf("the second database has %d", got)
		}
	}
	if n := fills.Load(); n != 1 && os.Getenv(EnvURL) == "" {
		t.Errorf("filled %d times", n)
	}
}
