package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/perdure/perdure/internal/fault"
)

func TestKindSurvivesWrapping(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("load history: %w", fault.New(fault.NotFound, "run %s", "run_1"))
	if got := fault.KindOf(err); got != fault.NotFound {
		t.Errorf("kind = %v, want not_found", got)
	}
	if got, want := err.Error(), "load history: run run_1"; got != want {
		t.Errorf("text = %q, want %q", got, want)
	}
}

func TestCauseIsReachableAndPrintedOnce(t *testing.T) {
	t.Parallel()
	err := fault.New(fault.Unavailable, "read page: %w", io.ErrUnexpectedEOF)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("cause is not reachable")
	}
	if got, want := err.Error(), "read page: unexpected EOF"; got != want {
		t.Errorf("text = %q, want %q", got, want)
	}
	hinted := fault.WithHint(err, "start the database")
	if got, want := hinted.Error(), "read page: unexpected EOF (start the database)"; got != want {
		t.Errorf("text = %q, want %q", got, want)
	}
	if !errors.Is(hinted, io.ErrUnexpectedEOF) || fault.KindOf(hinted) != fault.Unavailable {
		t.Error("a hint must keep cause and kind")
	}
}

func TestKindOfForeignErrors(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]fault.Kind{
		context.Canceled:         fault.Canceled,
		context.DeadlineExceeded: fault.Timeout,
		io.EOF:                   fault.Internal,
	} {
		if got := fault.KindOf(err); got != want {
			t.Errorf("KindOf(%v) = %v, want %v", err, got, want)
		}
	}
	if fault.KindOf(nil) != fault.Unclassified {
		t.Error("KindOf(nil) must be unclassified")
	}
}

func TestKindTextRoundTrips(t *testing.T) {
	t.Parallel()
	for k := fault.Unclassified; k <= fault.WrongType; k++ {
		if got := fault.ParseKind(k.String()); got != k {
			t.Errorf("ParseKind(%q) = %v", k, got)
		}
	}
}
