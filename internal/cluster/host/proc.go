package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// system reads the facts of this machine. Without a /proc that shows our own namespace, as on
// systems other than Linux, boot or namespace are empty and nothing can be proven.
func system() *facts {
	f := &facts{name: "unknown", stat: stat, probe: probe}
	if name, err := os.Hostname(); err == nil {
		f.name = name
	}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		f.boot = strings.TrimSpace(string(b))
	}
	f.namespace = namespace()
	return f
}

// namespace names the namespaces in which process ids and start times are valid. Start times are
// shifted by the time namespace of the reader. The result is empty if /proc belongs to another
// process id namespace, as in a container that mounts the /proc of its host. In such a /proc the
// entries describe other processes.
func namespace() string {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return ""
	}
	ids, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	clock, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		return ids // a kernel without time namespaces
	}
	return ids + " " + clock
}

// stat reads /proc/<pid>/stat.
func stat(pid int) (process, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	p, err := parseStat(string(b))
	if err != nil {
		return p, fmt.Errorf("stat of process %d: %w", pid, err)
	}
	return p, nil
}

// parseStat reads fields 3, 20 and 22. The second field is a name that may contain spaces and
// parentheses, so fields are counted from its end.
func parseStat(text string) (p process, err error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 || len(fields[0]) != 1 {
		return p, fmt.Errorf("%d fields after the name, want at least 20", len(fields))
	}
	p.state = fields[0][0]
	if p.threads, err = strconv.Atoi(fields[17]); err != nil {
		return p, err
	}
	p.start, err = strconv.ParseInt(fields[19], 10, 64)
	return p, err
}
