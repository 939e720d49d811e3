//go:build (!unix && !windows) || illumos || solaris || aix

package sqlite

import (
	"errors"
	"os"
)

func unlock(*os.File) {}

// tryLock always fails. Without a lock two processes could write to the store, and the store would
// lose data.
func tryLock(*os.File) (bool, error) {
	return false, errors.New("this build does not support file locks on this operating system")
}
