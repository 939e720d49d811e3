package remote

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// servers are the addresses that the client may use.
type servers struct {
	resolver *manual.Resolver
	all      []resolver.Address
	resolve  func(ctx context.Context, host string) ([]string, error)
	left     func() // called when the client leaves a server
}

// lookupTime bounds the search for the address of a server.
const lookupTime = 2 * time.Second

// leave makes the client stop using the server at an address, if the client knows another server.
// Calls that are under way at the old server may finish.
func (s *servers) leave(at net.Addr) {
	if s == nil || at == nil || len(s.all) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	others := slices.DeleteFunc(slices.Clone(s.all), func(a resolver.Address) bool { return s.isAt(ctx, a.Addr, at) })
	if len(others) > 0 && len(others) < len(s.all) {
		s.resolver.UpdateState(resolver.State{Addresses: others})
		s.left()
	}
}

// restore lets the client use all servers again. The client keeps its current connection.
func (s *servers) restore() {
	if s != nil && len(s.all) > 1 {
		s.resolver.UpdateState(resolver.State{Addresses: s.all})
	}
}

// isAt reports whether an address of the configuration resolves to the remote address of a
// connection.
func (s *servers) isAt(ctx context.Context, address string, at net.Addr) bool {
	if path, ok := strings.CutPrefix(address, unixScheme); ok {
		return at.String() == path
	}
	if address == at.String() {
		return true
	}
	host, port, err := net.SplitHostPort(address)
	ip, at2, err2 := net.SplitHostPort(at.String())
	if err != nil || err2 != nil || port != at2 {
		return false
	}
	found, err := s.resolve(ctx, host)
	return err == nil && slices.Contains(found, ip)
}
