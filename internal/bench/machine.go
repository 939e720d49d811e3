package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// describeMachine describes the machine of the measurements.
func describeMachine() string {
	parts := []string{fmt.Sprintf("%d cores", runtime.NumCPU())}
	if model := procText("/proc/cpuinfo", "model name"); model != "" {
		parts = append(parts, model)
	}
	if kib := procNumber("/proc/meminfo", "MemTotal"); kib > 0 {
		parts = append(parts, fmt.Sprintf("%.0f GiB", float64(kib)/(1<<20)))
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	parts = append(parts, strings.TrimSpace(runtime.GOOS+" "+string(kernel)), runtime.Version())
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		if fields := strings.Fields(string(load)); len(fields) > 2 {
			parts = append(parts, "load before the run "+strings.Join(fields[:3], " "))
		}
	}
	return strings.Join(parts, ", ")
}

// noisy is a share of the processor time. If other programs use more, results in milliseconds are
// unreliable.
const noisy = 0.15

// awaitQuiet waits until other programs use little of the machine, at most for the time most.
func awaitQuiet(ctx context.Context, most time.Duration) {
	const sample = 500 * time.Millisecond
	for end := time.Now().Add(most); time.Now().Before(end) && ctx.Err() == nil; {
		begin, before := time.Now(), machineCPU()
		time.Sleep(sample)
		all := time.Since(begin) * time.Duration(runtime.NumCPU())
		if float64(machineCPU()-before) < noisy*float64(all) {
			return
		}
	}
}

// procText reads the text after a name from a file of "name : text" lines.
func procText(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if left, right, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(left) == name {
			return strings.TrimSpace(right)
		}
	}
	return ""
}

// fileSystem returns the type of the file system that contains a path.
func fileSystem(path string) string {
	path, err := filepath.Abs(path)
	text, rerr := os.ReadFile("/proc/self/mounts")
	if err != nil || rerr != nil {
		return "an unknown file system"
	}

	best, kind := "", "an unknown file system"
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		mount := strings.TrimSuffix(fields[1], "/")
		if len(mount) >= len(best) && (path == mount || strings.HasPrefix(path, mount+"/")) {
			best, kind = mount, fields[2]
		}
	}

	return kind
}
