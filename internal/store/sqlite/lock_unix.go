//go:build unix && !illumos && !solaris && !aix

package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// unlock releases the lock even if a child process that is just being started shares the open file.
func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// tryLock takes an exclusive lock of the open file. The lock also excludes a second open of the
// file in the same process.
func tryLock(f *os.File) (bool, error) {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}
