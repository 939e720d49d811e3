//go:build unix

package sqlite

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the user that a file belongs to. known is false if it cannot find out.
func ownerOf(file fs.FileInfo) (user int, known bool) {
	s, ok := file.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
