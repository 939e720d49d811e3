package pgtest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent returns the attributes of a child that gets SIGQUIT when this process ends. A
// PostgreSQL server that gets SIGQUIT shuts down immediately. If user is not nil, the child runs as
// that user. Go changes the user before it asks the kernel for the signal. This order is necessary,
// because a change of the user cancels the signal.
func dieWithParent(user *serverUser) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGQUIT,
		// The child gets its own process group: Ctrl-C in a terminal goes only to the tests, which
		// decide what to stop.
		Setpgid: true,
	}
	if user != nil {
		attr.Credential = user.credential()
	}
	return attr
}

// children lists the direct children of a process.
func children(pid int) ([]int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, err
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, child)
	}
	return pids, nil
}

// isRunning reports whether a process exists and is not a zombie.
func isRunning(pid int) bool {
	switch state(pid) {
	case 0, 'Z', 'X':
		return false
	default:
		return true
	}
}

// isStopped reports whether a process was stopped by a signal.
func isStopped(pid int) bool { return state(pid) == 'T' }

// state returns the state of a process as in proc(5), or 0 if it does not exist.
func state(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The state follows the command, which is in parentheses and may itself contain parentheses.
	if i := bytes.LastIndexByte(stat, ')'); i >= 0 && i+2 < len(stat) {
		return stat[i+2]
	}
	return 0
}

// removeSharedMemory removes the one System V segment that a killed server leaves behind. A server
// that has shut down properly has removed the segment itself. removeSharedMemory ignores errors,
// because a segment that remains takes only a few dozen bytes until the next reboot.
func removeSharedMemory(data string) {
	file, err := os.Open(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return // the server was stopped properly, or never ran
	}
	defer file.Close()

	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		if n != 7 { // LOCK_FILE_LINE_SHMEM_KEY: key and id
			continue
		}
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 {
			return
		}
		if id, err := strconv.Atoi(fields[1]); err == nil {
			const remove = 0 // IPC_RMID
			_, _, _ = syscall.Syscall(syscall.SYS_SHMCTL, uintptr(id), remove, 0)
		}
		return
	}
}
