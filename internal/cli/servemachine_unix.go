//go:build unix

package cli

import "syscall"

// openFileLimit returns how many files this process may have open.
func openFileLimit() (uint64, bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return uint64(limit.Cur), true //nolint:unconvert // signed on some systems
}
