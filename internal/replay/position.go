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

// positionDepth is how many frames are examined when the frame of the caller is unknown. It is
// small because unwinding is expensive.
const positionDepth = 12

type positionKey [positionDepth]uintptr

// Caller returns a program counter for Step.Caller. If user code calls function A of the SDK, and A
// calls Caller, the result is the program counter in user code. Caller returns 0 when positions are
// not needed. SDK functions that are called often use Caller, because it unwinds the stack only up
// to the wanted frame.
func (x Ctx) Caller() uintptr {
	if c := x.co; c == nil || !c.m.live && !c.m.examine {
		return 0
	}
	var pc [1]uintptr
	runtime.Callers(3, pc[:])
	return pc[0]
}

// of returns the place where user code called the SDK. That is the place of the program counter or,
// if the program counter is 0, the innermost frame outside the SDK. newAsk calls of.
func (p *positions) of(pc uintptr) string {
	if pc != 0 {
		if place := p.look(positionKey{pc}); place != "" {
			return place
		} // the SDK called itself: look at the stack
	}
	var key positionKey
	runtime.Callers(3, key[:])
	return p.look(key)
}

// look returns the place of a key. It looks up symbols only the first time.
func (p *positions) look(key positionKey) string {
	p.mu.RLock()
	place, ok := p.known[key]
	p.mu.RUnlock()
	if ok {
		return place
	}
	return p.learn(key)
}

// learn looks up the place of a key and remembers it. It is a separate function, so that the key
// moves to the heap only here and not in look.
func (p *positions) learn(key positionKey) string {
	place := userFrame(key[:])
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[positionKey]string{}
	}
	p.known[key] = place
	return place
}

// userFrame returns the innermost frame outside the SDK.
func userFrame(pcs []uintptr) string {
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if f.Function != "" && !isSDKFunction(f.Function) {
			return place(f.File, f.Line)
		}
		if !more {
			return ""
		}
	}
}

// placeIn returns the place of the innermost frame of user code in the text of a stack. It returns
// "" if there is none.
func placeIn(stack string) string {
	function := ""
	for line := range strings.Lines(stack) {
		file, inStandard := strings.CutPrefix(strings.TrimSpace(line), standard)
		switch {
		case !strings.HasPrefix(line, "\t"):
			function = line
			continue
		case isSDKFunction(function) || inStandard && standard != "":
			continue
		}

		file, _, _ = strings.Cut(file, " +0x")
		if i := strings.LastIndexByte(file, ':'); i > 0 {
			if n, err := strconv.Atoi(file[i+1:]); err == nil {
				return place(file[:i], n)
			}
		}
	}
	return ""
}

// standard is the folder with the source of the standard library. It is empty if this program was
// built without the names of folders.
var standard = func() string {
	var pc [1]uintptr
	runtime.Callers(0, pc[:])
	f, _ := runtime.CallersFrames(pc[:]).Next() // runtime.Callers itself
	folder, _ := strings.CutSuffix(f.File, "runtime/extern.go")
	return folder
}()

// isSDKFunction reports whether a function belongs to the SDK.
func isSDKFunction(function string) bool {
	rest, ok := strings.CutPrefix(function, "github.com/perdure/perdure")
	return ok && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "/internal/replay."))
}

// place returns the last directory, the file and the line.
func place(file string, line int) string {
	if i := strings.LastIndexByte(file, '/'); i > 0 {
		if j := strings.LastIndexByte(file[:i], '/'); j >= 0 {
			file = file[j+1:]
		}
	}
	return file + ":" + strconv.Itoa(line)
}
