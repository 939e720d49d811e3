package node

import (
	"context"
	"net"
	"strconv"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/peerlink"
	"github.com/perdure/perdure/internal/store"
)

// located is a store that this process reaches over a connection.
type located interface {
	LocalAddr(ctx context.Context) (net.Addr, error)
}

// isAddress reports whether a text is host:port or :port.
func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// isReachable reports whether a text is host:port, with a host and a port that a process on another
// machine can connect to.
func isReachable(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || port == "0" || !isAddress(text) {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsUnspecified()
}

// listenForPeers opens the port on which other nodes of the cluster connect to this one. It returns
// nil if there can be no other nodes. A node also works without the port, because requests can go
// through the store. So a node that has chosen the address itself only logs that it cannot listen
// there.
func listenForPeers(ctx context.Context, cfg *Config, st store.Store) (*peerlink.Endpoint, error) {
	if cfg.NoPeerLink || cfg.Guest || !st.Info().Shared {
		return nil, nil
	}
	address, err := peerAddress(ctx, cfg.PeerListen, st)
	if err == nil {
		var end *peerlink.Endpoint
		if end, err = peerlink.Listen(peerlink.Config{Address: address, Advertise: cfg.PeerAdvertise, Log: cfg.Log}); err == nil {
			return end, nil
		}
	}
	if cfg.PeerListen != "" {
		return nil, fault.WithHint(err, "set another address for other nodes, or switch the connections between nodes off")
	}
	cfg.Log.Warn("the node cannot listen for other nodes; requests between them go through the store", "error", err)
	return nil, nil
}

// peerAddress returns where to listen. If listen has no host, peerAddress uses the local address of
// the connection to the database, because the other nodes can reach the network of the database
// too. If the database is on this machine, that is the loopback address.
func peerAddress(ctx context.Context, listen string, st store.Store) (string, error) {
	host, port := "", "0"
	if listen != "" {
		var err error
		if host, port, err = net.SplitHostPort(listen); err != nil {
			return "", err
		}
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return listen, nil
	}

	host = "127.0.0.1"
	if l, ok := st.(located); ok {
		addr, err := l.LocalAddr(ctx)
		if err != nil {
			return "", err
		}
		if tcp, ok := addr.(*net.TCPAddr); ok {
			host = tcp.IP.String()
		}
	}
	return net.JoinHostPort(host, port), nil
}
