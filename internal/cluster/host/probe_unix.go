//go:build unix

package host

import (
	"errors"
	"syscall"
)

// probe asks the kernel whether a process has the id. For a process of another user the kernel
// answers EPERM.
func probe(pid int) error {
	err := syscall.Kill(pid, 0)
	if errors.Is(err, syscall.ESRCH) {
		return errNoProcess
	}
	return err
}
