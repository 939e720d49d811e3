package bench

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is how much processor time, memory and disk a measurement used.
type Usage struct {
	Process  time.Duration // processor time of the process of the system, clients included
	Database time.Duration // processor time of the PostgreSQL server and all its backends
	Server   time.Duration // processor time of the server, if it is a separate process
	Worker   time.Duration // processor time of the worker, if it is a separate process
	// Written is the bytes of write-ahead log (PostgreSQL), or all bytes that the process wrote to
	// files (SQLite).
	Written int64
	// Flushes is, per workflow or task, the flushes of the write-ahead log (PostgreSQL) or the
	// commits (SQLite).
	Flushes float64
	Rows    float64 // per task: rows inserted, updated or deleted (PostgreSQL)
	Allocs  int64   // allocations of the process on the Go heap
	Bytes   int64   // bytes of these allocations
	RSS     int64   // resident memory of the process in bytes, at the end
	// ServerRSS is the resident memory of the server in bytes, at the end, if it is a separate
	// process.
	ServerRSS int64
	Others    float64 // share of the machine's processor time that other programs used
}

// CPU is the processor time of all processes together.
func (u Usage) CPU() time.Duration { return u.Process + u.Server + u.Worker + u.Database }

// tick is the unit of processor times in /proc/<pid>/stat: USER_HZ, which is 100 on all our Linux
// systems.
const tick = 10 * time.Millisecond

// databaseCPU returns the processor time of a postmaster, of its children, and of children that
// have ended.
func databaseCPU(postmaster int) time.Duration {
	if postmaster == 0 {
		return 0
	}
	own, ended, _ := processTimes(postmaster)
	total := own + ended
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		pid, _ := strconv.Atoi(filepath.Base(entry))
		own, _, parent := processTimes(pid)
		if parent == postmaster {
			total += own
		}
	}
	return total
}

// processTimes returns the processor time of a process with one thread, the processor time of its
// ended children, and the id of its parent. All are zero if the process does not exist. The first
// value is exact if the kernel counts nanoseconds. Ticks would be rounded for each of many
// backends, which would add up to a large error.
func processTimes(pid int) (own, ended time.Duration, parent int) {
	own, ended, parent = tickTimes(pid)
	if exact, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat"); err == nil {
		if fields := strings.Fields(string(exact)); len(fields) > 0 {
			if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil && n > 0 {
				own = time.Duration(n)
			}
		}
	}

	return own, ended, parent
}

// tickTimes returns the processor time of all threads of a process, also of threads that have
// ended, the processor time of its ended children, and the id of its parent. All are zero if the
// process does not exist. The times are rounded to ticks.
func tickTimes(pid int) (own, ended time.Duration, parent int) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, 0
	}

	// The name of the program, in parentheses, may contain any text. Numbers follow it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 15 {
		return 0, 0, 0
	}
	ticks := func(i int) time.Duration { n, _ := strconv.ParseInt(fields[i], 10, 64); return time.Duration(n) * tick }
	parent, _ = strconv.Atoi(fields[1])
	return ticks(11) + ticks(12), ticks(13) + ticks(14), parent
}

// threadsCPU returns the processor time of all threads of a process. It is exact as long as no
// thread has ended. Go keeps its threads, other programs may not.
func threadsCPU(pid int) time.Duration {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/[0-9]*/schedstat")
	var sum time.Duration
	for _, file := range threads {
		text, _ := os.ReadFile(file)
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			n, _ := strconv.ParseInt(fields[0], 10, 64)
			sum += time.Duration(n)
		}
	}

	ticks, _, _ := tickTimes(pid)
	return max(sum, ticks)
}

// family returns a process and its descendants.
func family(pid int) []int {
	children := map[int][]int{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		child, _ := strconv.Atoi(filepath.Base(entry))
		_, _, parent := tickTimes(child)
		children[parent] = append(children[parent], child)
	}

	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children[pids[i]]...)
	}
	return pids
}

// postmasterOf returns the parent process of a backend, if the backend runs on this machine.
func postmasterOf(backend int) int {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(backend) + "/comm")
	if err != nil || !strings.HasPrefix(string(name), "postgres") {
		return 0
	}
	_, _, parent := processTimes(backend)
	return parent
}

// procNumber reads the number after a name from a file of "name: number" lines.
func procNumber(file, name string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				n, _ := strconv.ParseInt(fields[0], 10, 64)
				return n
			}
		}
	}
	return 0
}

// machineCPU returns the processor time of all processes together, including time that the
// hypervisor gave to other machines.
func machineCPU() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var busy time.Duration
	// cpu user nice system idle iowait irq softirq steal guest guest_nice
	for i, field := range strings.Fields(line) {
		if n, err := strconv.ParseInt(field, 10, 64); err == nil && i != 4 && i != 5 && i < 9 {
			busy += time.Duration(n) * tick
		}
	}
	return busy
}

// residentMemory returns the resident memory of this process in bytes.
func residentMemory() int64 { return residentOf("self") }

// residentOf returns the resident memory of a process in bytes.
func residentOf(pid string) int64 { return procNumber("/proc/"+pid+"/status", "VmRSS") << 10 }

// bytesWritten returns the bytes that a process wrote to files and sockets.
func bytesWritten(pid int) int64 { return procNumber("/proc/"+strconv.Itoa(pid)+"/io", "wchar") }

// sqliteCommits returns the number of write transactions of an open SQLite database in WAL mode
// since its log was opened. The number is the field iChange in the header of the WAL index: see
// "WAL-mode File Format" in the documentation of SQLite.
func sqliteCommits(path string) int64 {
	file, err := os.Open(path + "-shm")
	if err != nil {
		return 0
	}
	defer file.Close()
	var word [4]byte
	if _, err := file.ReadAt(word[:], 8); err != nil {
		return 0
	}
	return int64(binary.NativeEndian.Uint32(word[:]))
}
