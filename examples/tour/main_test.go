package main

import (
	"testing"
	"testing/synctest"

	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

func TestTour(t *testing.T) {
	t.Parallel()
	// In virtual time, the wait for the warehouse costs nothing.
	synctest.Test(t, func(t *testing.T) {
		if err := run(t.Context(), "memory:"); err != nil {
			t.Error(err)
		}
	})
}
