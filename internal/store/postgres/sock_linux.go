package postgres

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"
)

// userTimeout ends a connection whose peer does not acknowledge what we sent for that long.
func userTimeout(d time.Duration) func(network, address string, c syscall.RawConn) error {
	const tcpUserTimeout = 0x12
	return func(network, _ string, c syscall.RawConn) error {
		if network != "tcp" && network != "tcp4" && network != "tcp6" {
			return nil
		}
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		}), err)
	}
}

// healthy looks, without a round trip, whether the other side has closed an idle connection or
// announced its end. It keeps a restart of the server from turning the first commit after it into
// one whose outcome is unknown. Data that waits on an encrypted connection may be harmless and
// counts as healthy: the next read will tell.
func healthy(conn net.Conn) bool {
	wrapped, encrypted := conn.(*tls.Conn)
	if encrypted {
		conn = wrapped.NetConn()
	}
	sys, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}

	_ = conn.SetReadDeadline(time.Time{}) // that of the last use may have passed
	raw, err := sys.SyscallConn()
	if err != nil {
		return false
	}
	alive := true

	// Control, not Read: after a slow write the driver leaves a goroutine behind that reads in the
	// background, and Read would wait for it.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case errors.Is(err, syscall.EAGAIN):
		case err != nil || n == 0:
			alive = false
		default:
			// a changed setting; an error or a warning that nobody asked for is the last word of a
			// server
			alive = encrypted || b[0] == 'S'
		}
	})

	return err == nil && alive
}
