//go:build !linux

package postgres

import (
	"net"
	"syscall"
	"time"
)

// userTimeout is left to the keep-alive settings where the socket option does not exist.
func userTimeout(time.Duration) func(network, address string, c syscall.RawConn) error { return nil }

// healthy is not known without a round trip; a dead connection shows itself in the next call.
func healthy(net.Conn) bool { return true }
