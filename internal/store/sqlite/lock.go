package sqlite

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/fault"
)

// fileLock is the exclusive claim of a process on a store. The system releases it when the process
// ends for any reason. The lock file itself stays: if it were removed, two processes could lock two
// files with the same name.
type fileLock struct{ f *os.File }

// lockFile claims the store at path, or returns an error that names the owner.
func lockFile(path string) (*fileLock, error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, openFailed(name, err)
	}

	// Use a lock of the operating system, because it ends with the process, even after kill -9. A
	// file with a process id would stay.
	switch locked, err := tryLock(f); {
	case err != nil:
		_ = f.Close()
		return nil, fault.New(fault.Unavailable, "lock %s: %w", name, err)
	case !locked:
		holder := holderOf(f)
		_ = f.Close()
		return nil, &fault.Error{
			Kind: fault.Conflict, Text: fmt.Sprintf("%s is in use by another process%s; its lock is %s", path, holder, name),
			Hint: "stop that process, or open the file read-only; several processes need a PostgreSQL store",
		}
	}

	// The name of the owner is only for people, so a failure to write it does not matter.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return &fileLock{f}, nil
}

// holderOf names the process that holds the lock, as far as it is known.
func holderOf(f *os.File) string {
	text, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return ""
	}
	return fmt.Sprintf(" (pid %d)", pid)
}

// release releases the claim.
func (l *fileLock) release() error {
	_ = l.f.Truncate(0)
	unlock(l.f)
	return l.f.Close()
}
