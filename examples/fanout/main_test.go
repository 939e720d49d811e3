package main

import (
	"testing"

	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

func TestAllStepsCountOnce(t *testing.T) {
	t.Parallel()
	total, _, err := run(t.Context(), "memory:", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if total != 332833500 {
		t.Errorf("sum = %d, want 332833500", total)
	}
	if ran.Load() != 1000 {
		t.Errorf("%d bodies ran, want 1000", ran.Load())
	}
}
