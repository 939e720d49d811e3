package node_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/store"
)

// A server that cannot start leaves nothing behind: no goroutine, and its address is free.
//
//nolint:paralleltest // it counts goroutines
func TestServerThatCannotStartLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	broken := errors.New("the REST API is broken")
	_, err = node.Serve(t.Context(), node.ServerConfig{
		Node: node.Config{URL: "memory:"}, Listen: address, Authenticator: authn.Open{Tenant: model.DefaultTenant}, Tenant: model.DefaultTenant,
		Web: func(node.Parts) (node.Web, error) { return nil, broken },
	})
	if !errors.Is(err, broken) {
		t.Fatalf("Serve returns %v", err)
	}
	goleak.VerifyNone(t, before)
	if l, err = lc.Listen(t.Context(), "tcp", address); err != nil {
		t.Fatalf("the address is taken: %v", err)
	}
	_ = l.Close()
}

// A server does not open its store if an operation of its REST API is missing in the table of
// actions.
func TestOperationsAreCheckedFirst(t *testing.T) {
	t.Parallel()
	_, err := node.Serve(t.Context(), node.ServerConfig{
		Node:   node.Config{URL: "memory:", Wrap: func(s store.Store) store.Store { t.Error("the store is open"); return s }},
		Listen: "127.0.0.1:0", Authenticator: authn.Open{Tenant: model.DefaultTenant}, Tenant: model.DefaultTenant, Operations: []string{"get-me", "do-harm"},
	})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "no row for do-harm") {
		t.Error(err)
	}
}
