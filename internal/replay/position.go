package replay

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// positions turns program counters into file:line of user code. Looking symbols up is slow, so each
// place is looked up once.
type positions struct {
	mu    sync.RWMutex
	known map[positionKey]string
}

// positionDepth is how many frames are looked at when the frame of the caller is not known.
// Unwinding is what costs.
const positionDepth = 12

type positionKey [positionDepth]uintptr

// Caller is the program counter in the function that called the caller of this one, for
// Step.Caller; 0 when nobody needs it. It is worth its place in hot calls: unwinding stops at the
// frame that is wanted.
func (x Ctx) Caller() uintptr {
	if c := x.co; c == nil || !c.m.live && !c.m.examine {
		return 0
	}
	var pc [1]uintptr
	runtime.Callers(3, pc[:])
	return pc[0]
}

// of is where user code called into the SDK: at the program counter, or in the innermost frame that
// is not ours when it is 0. It is called by newAsk.
func (p *positions) of(pc uintptr) string {
	if pc != 0 {
		if place := p.look(positionKey{pc}); place != "" {
			return place
		} // else the SDK called itself
	}
	var key positionKey
	runtime.Callers(3, key[:])
	return p.look(key)
}

// look finds the place of a key, looking symbols up the first time.
func (p *positions) look(key positionKey) string {
	p.mu.RLock()
	place, ok := p.known[key]
	p.mu.RUnlock()
	if ok {
		return place
	}
	place = userFrame(key[:])
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[positionKey]string{}
	}
	p.known[key] = place
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
