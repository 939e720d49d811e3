//go:build unix && !linux

package pgtest

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent sets the user of a child if one is given. These systems have no parent death
// signal: after kill -9 of a test, its server notices within a minute that its directory is gone,
// and stops.
func dieWithParent(user *serverUser) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if user != nil {
		attr.Credential = user.credential()
	}
	return attr
}

// children lists the direct children of a process.
func children(pid int) ([]int, error) {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil, fmt.Errorf("pgrep: %w", err)
	}
	var pids []int
	for field := range strings.FieldsSeq(string(out)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, child)
	}
	return pids, nil
}

// isRunning reports whether a process exists.
func isRunning(pid int) bool { return syscall.Kill(pid, 0) == nil }

// isStopped reports whether a process was stopped by a signal.
func isStopped(pid int) bool {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(out)), "T")
}

// removeSharedMemory does nothing on these systems. The next server with the same key removes the
// segment.
func removeSharedMemory(string) {}
