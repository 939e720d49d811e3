//go:build unix

package node

import (
	"os"
	"syscall"
)

// protectSocket sets the mode of a socket before the socket has a path, so that at no time another
// user can connect.
func protectSocket(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
}

// sameOwner reports whether two files belong to the same user.
func sameOwner(a, b os.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	return ok && ok2 && x.Uid == y.Uid
}
