package replay

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// positions turns program counters into file:line of user code. Looking symbols up is slow, so each place is looked up once.
type positions struct {
	mu    sync.RWMutex
	known map[[positionDepth]uintptr]string
}

// positionDepth is how many frames are looked at, stepDepth how many for a step, of which there are most: unwinding is what costs.
const (
	positionDepth = 8
	stepDepth     = 5
)

// caller is where user code called into the SDK.
func (p *positions) caller(depth int) string {
	var pcs [positionDepth]uintptr
	if runtime.Callers(3, pcs[:depth]) == 0 {
		return ""
	}
	p.mu.RLock()
	place, ok := p.known[pcs]
	p.mu.RUnlock()
	if ok {
		return place
	}
	place = userFrame(pcs[:])
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[[positionDepth]uintptr]string{}
	}
	p.known[pcs] = place
	return place
}

// userFrame is the innermost frame that is not ours.
func userFrame(pcs []uintptr) string {
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if f.Function != "" && !ours(f.Function) {
			return place(f.File, f.Line)
		}
		if !more {
			return ""
		}
	}
}

func ours(function string) bool {
	rest, ok := strings.CutPrefix(function, "github.com/perdure/perdure")
	return ok && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "/internal/replay."))
}

// place is the last directory, the file and the line.
func place(file string, line int) string {
	if i := strings.LastIndexByte(file, '/'); i > 0 {
		if j := strings.LastIndexByte(file[:i], '/'); j >= 0 {
			file = file[j+1:]
		}
	}
	return file + ":" + strconv.Itoa(line)
}
