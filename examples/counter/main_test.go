package main

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/examples/internal/printed"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
	"github.com/perdure/perdure/perduretest"
)

// The second run finds the counts of the first run.
func TestCounter(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "counter.db")
	for _, want := range [][]string{
		{"/home was visited 1 times", "/about was visited 1 times", "/home was visited 2 times", "/home: 2, exists: true", "/about had 1, exists: false"},
		{"/home was visited 3 times", "/about was visited 1 times", "/home was visited 4 times", "/home: 4, exists: true", "/about had 1, exists: false"},
	} {
		var out printed.Text
		if err := run(t.Context(), url, out.Say); err != nil {
			t.Fatal(err)
		}
		if diff := printed.Diff(out.String(), want...); diff != "" {
			t.Error(diff)
		}
	}
}

// All visits count, even if they happen at the same time.
func TestVisitsAtTheSameTime(t *testing.T) {
	t.Parallel()
	perduretest.Run(t, perdure.Group{pages}, func(t *testing.T, env *perduretest.Env) {
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := visit.Call(env.With(), "/", 2); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if p, _, err := pages.Get(env.With(), "/"); err != nil || p.Visits != 100 {
			t.Errorf("%d visits, %v", p.Visits, err)
		}
	})
}
