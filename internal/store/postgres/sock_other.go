//go:build !linux

package postgres

import (
	"net"
	"syscall"
	"time"
)

// userTimeout does nothing where the socket option does not exist. The keep-alive settings apply.
func userTimeout(time.Duration) func(network, address string, c syscall.RawConn) error { return nil }

// healthy always returns true, because it cannot check the connection without a round trip. On a
// dead connection, the next call fails.
func healthy(net.Conn) bool { return true }
