package flovyn_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/flovyn"
)

// The table of actions has every request of the contract, and no other.
func TestRoutesHaveActions(t *testing.T) {
	t.Parallel()
	served := flovyn.RouteNames()
	slices.Sort(served)
	if diff := cmp.Diff(authz.Routes(), served); diff != "" {
		t.Error(diff)
	}
}
