// Package host identifies this process to others on the same machine, so that one of them can prove that it is gone.
package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Self describes this process under a node id.
func Self(id model.NodeID, version string) store.NodeInfo {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown" // only for people
	}
	n := store.NodeInfo{ID: id, Host: name, PID: os.Getpid(), Version: version, BootID: bootID(), Namespace: pidNamespace()}
	n.PIDStart, _ = startTime(n.PID) // without it nobody can prove our death, and others wait for the lease
	return n
}

// Gone reports whether a process is provably gone: it ran on this boot of this machine, in our process id namespace, and its
// process id is free or belongs to a process that started at another time. When in doubt it says no.
func Gone(n store.NodeInfo) bool {
	if n.BootID == "" || n.Namespace == "" || n.PIDStart == 0 || n.BootID != bootID() || n.Namespace != pidNamespace() {
		return false
	}
	start, err := startTime(n.PID)
	if os.IsNotExist(err) {
		return true
	}
	return err == nil && start != n.PIDStart
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // not Linux: nothing can be proven
	}
	return strings.TrimSpace(string(b))
}

func pidNamespace() string {
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return ns
}

// startTime reads field 22 of /proc/<pid>/stat. The second field may contain spaces and parentheses, so it counts from the last one.
// A zombie has ended: only its parent has not looked yet.
func startTime(pid int) (int64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("stat of process %d has %d fields", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, os.ErrNotExist
	}
	return strconv.ParseInt(fields[19], 10, 64)
}
