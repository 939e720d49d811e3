package sqlite

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/fault"
)

// fileLock is the exclusive claim of a process on a store. The system gives it up when the process
// ends, in whatever way. The lock file itself stays: removing it would let two processes lock two
// files of the same name.
type fileLock struct{ f *os.File }

// lockFile claims the store at path, or says who has it.
func lockFile(path string) (*fileLock, error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, openFailed(name, err)
	}

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

	// Who holds the lock is for people: a failure to say so is none of the lock.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return &fileLock{f}, nil
}

// holderOf says which process holds the lock, as far as it said so.
func holderOf(f *os.File) string {
	text, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return ""
	}
	return fmt.Sprintf(" (pid %d)", pid)
}

// release gives the claim up.
func (l *fileLock) release() error {
	_ = l.f.Truncate(0)
	unlock(l.f)
	return l.f.Close()
}
