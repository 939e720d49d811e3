//go:build !linux

package postgres

import (
	"net"
	"syscall"
	"time"
)

// userTimeout does nothing where the socket option does not exist. The keep-alive settings apply.
func userTimeout(time.Duration) func(network, address string, c syscall.RawConn) error { return nil }

// healthy cannot know without a round trip. A dead connection fails in the next call.
func healthy(net.Conn) bool { return true }
