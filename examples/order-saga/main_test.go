package main

import (
	"testing"

	"github.com/perdure/perdure/examples/internal/printed"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

func TestFailedOrderIsUndoneInReverse(t *testing.T) {
	t.Parallel()
	var out printed.Text
	if err := run(t.Context(), "memory:", out.Say); err != nil {
		t.Fatal(err)
	}
	if diff := printed.Diff(
		out.String(),
		"order o-1", "reserved stock for o-1", "the payment service does not answer; retrying", "charged o-1, attempt 2",
		"shipped o-1 to Main Street 1", "order o-1 is on its way: parcel-o-1",
		"order o-2", "reserved stock for o-2", "the payment service does not answer; retrying", "charged o-2, attempt 2",
		"refunded payment-o-2", "released stock-o-2", "order o-2 failed and was undone: ship order o-2: there is no address",
	); diff != "" {
		t.Error(diff)
	}
}
