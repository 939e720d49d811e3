//go:build unix

package host

import (
	"errors"
	"syscall"
)

// probe asks the kernel whether a process has the id. A process of another user answers EPERM.
func probe(pid int) error {
	err := syscall.Kill(pid, 0)
	if errors.Is(err, syscall.ESRCH) {
		return errNoProcess
	}
	return err
}
