package postgres

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"
)

// userTimeout ends a connection whose peer does not acknowledge sent data for that long.
func userTimeout(d time.Duration) func(network, address string, c syscall.RawConn) error {
	const tcpUserTimeout = 0x12
	return func(network, _ string, c syscall.RawConn) error {
		if network != "tcp" && network != "tcp4" && network != "tcp6" {
			return nil
		}
		var set error
		err := c.Control(func(fd uintptr) {
			set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		})
		return errors.Join(err, set)
	}
}

// healthy checks, without a round trip, whether the other side has closed an idle connection or
// announced its end. Without this check, the first commit after a restart of the server would have
// an unknown outcome. Unread data on an encrypted connection may be harmless. In that case healthy
// returns true, and the next read shows whether the connection works.
func healthy(conn net.Conn) bool {
	wrapped, encrypted := conn.(*tls.Conn)
	if encrypted {
		conn = wrapped.NetConn()
	}
	sys, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}

	_ = conn.SetReadDeadline(time.Time{}) // the deadline of the last use may have passed
	raw, err := sys.SyscallConn()
	if err != nil {
		return false
	}
	alive := true

	// Use Control instead of Read. After a slow write, a goroutine of the driver still reads in the
	// background, and Read would wait for it.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case errors.Is(err, syscall.EAGAIN):
		case err != nil || n == 0:
			alive = false
		default:
			// A message S reports a changed setting, which is harmless. An error or a warning on an
			// idle connection is the last message of a server that ends it.
			alive = encrypted || b[0] == 'S'
		}
	})

	return err == nil && alive
}
