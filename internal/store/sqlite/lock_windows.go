package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// unlock has nothing to do: closing the file is enough.
func unlock(*os.File) {}

// tryLock takes an exclusive lock of the open file. The locked byte is after the contents, so that
// other processes may read the contents.
func tryLock(f *os.File) (bool, error) {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{Offset: 1 << 30})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}
