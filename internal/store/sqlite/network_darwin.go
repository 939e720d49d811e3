package sqlite

import (
	"slices"
	"syscall"
)

// networkFileSystem names the network file system of a directory. It returns an empty text for a
// local file system, and if it cannot find out.
func networkFileSystem(dir string) string {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return ""
	}
	var name []byte
	for _, c := range s.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	if slices.Contains([]string{"nfs", "smbfs", "afpfs", "webdav", "acfs"}, string(name)) {
		return string(name)
	}
	return ""
}
