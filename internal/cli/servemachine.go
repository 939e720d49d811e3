package cli

import (
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/heap"
)

// leastFiles is how many files and connections a server must be able to have open.
const leastFiles = 4096

// machine has functions that return facts about the machine on which the server runs. Tests replace
// them.
type machine struct {
	// openFiles returns how many files this process may have open. It returns false if that is
	// unknown.
	openFiles func() (uint64, bool)
	// memory returns how many bytes this process may use. It returns false if there is no limit.
	memory func() (uint64, bool)
	// proxy returns the proxy that the environment sets for a request, or nil if there is none.
	proxy func(*http.Request) (*url.URL, error)
	// fileSystem returns the name of the network file system of a directory. If fileSystem is nil,
	// the server asks the operating system.
	fileSystem func(dir string) string
}

// thisMachine asks the operating system.
func thisMachine() machine {
	return machine{
		openFiles: openFileLimit, memory: func() (uint64, bool) { return memoryLimit("/sys/fs/cgroup") }, proxy: http.ProxyFromEnvironment,
	}
}

// checkFiles refuses a limit of open files that a server would soon reach. The Go runtime has
// already raised the limit as far as it may.
func (m machine) checkFiles() error {
	n, ok := m.openFiles()
	if !ok || n >= leastFiles {
		return nil
	}
	return fault.WithHint(fault.New(fault.Invalid, "this process may have %d files and connections open, must be >= %d", n, leastFiles),
		"raise the limit: ulimit -n 65536, LimitNOFILE=65536 in a unit of systemd, or --ulimit nofile=65536 of a container")
}

// memoryShare is the part of the memory of a container that Go may use before it collects garbage
// more often. The rest is for memory that the Go runtime does not manage.
const memoryShare = 0.9

// limitMemory tells Go how much memory the container has, unless $GOMEMLIMIT is set.
func (m machine) limitMemory(log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if n, ok := m.memory(); ok {
		limit := int64(min(float64(n)*memoryShare, math.MaxInt64/2))
		debug.SetMemoryLimit(limit)
		log.Info("the memory of this process is limited; set $GOMEMLIMIT for another limit", "container", n, "limit", limit)
	}
}

// floorHeap lets the heap grow to a floor before its garbage is collected, unless $GOGC is set. In
// a small container the floor is an eighth of the memory. The caller must call end.
func (m machine) floorHeap() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	floor := uint64(heap.ServerFloor)
	if n, ok := m.memory(); ok {
		floor = min(floor, n/8)
	}
	return heap.Keep(floor).End
}

// memoryLimit reads the limit of the control group, of version 2 or 1.
func memoryLimit(root string) (uint64, bool) {
	for _, file := range []string{"/memory.max", "/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(root + file)
		if err != nil {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		const unlimited = 1 << 60 // version 1 has a large number for no limit
		return n, err == nil && n > 0 && n < unlimited
	}
	return 0, false
}
