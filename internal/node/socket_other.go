//go:build !unix

package node

import (
	"os"
	"syscall"
)

// protectSocket does nothing: the directory protects the socket.
func protectSocket(_, _ string, _ syscall.RawConn) error { return nil }

// sameOwner reports true: files have no owner that can be compared here.
func sameOwner(_, _ os.FileInfo) bool { return true }
