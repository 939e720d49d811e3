package perdurevet

import (
	"go/types"
	"strings"
	"sync"
)

// rule forbids functions of a package in workflow code.
type rule struct {
	pkg, recv string // import path; the type whose methods are forbidden, or "" for functions
	names     string // separated by spaces; "*" is all, "* -X -Y" is all except some
	check     check
	hint      string // what to write instead
}

// What to write instead.
const (
	useNow     = "it differs on replay; use ctx.Now()"
	useSleep   = "it blocks the worker and is not durable; use ctx.Sleep"
	useTimer   = "it is not durable; use ctx.Timer"
	useTimeout = "it uses the system clock, not the journal; use ctx.WithTimeout"
	useRand    = "it differs on replay; use ctx.Rand()"
	useUUID    = "it differs on replay; use ctx.UUID()"
	useGo      = "the scheduler does not know the goroutine; use perdure.Go, and perdure.All to wait"
	useStep    = "it happens again on every replay; move it into perdure.Do or an activity"
	useInput   = "it may be different on replay, and on another machine; pass it in with the input, or read it in perdure.Do"
	useLog     = "it is printed again on every replay; use ctx.Log()"
	useWait    = "it blocks the worker, and the execution cannot leave memory; use perdure.Wait or perdure.All on futures"
	useState   = "replay may see another value; pass it in with the input, or keep it in the workflow"
	useBody    = "workflow code has no context.Context; move the call into perdure.Do or an activity, which receive one"
)

// rules is the table for code that perdurevet does not analyse: the standard library and well-known
// modules.
var rules = []rule{
	{"time", "", "Now Since Until", clock, useNow},
	{"time", "", "Sleep", clock, useSleep},
	{"time", "", "After AfterFunc NewTicker NewTimer Tick", clock, useTimer},
	{"context", "", "WithTimeout WithTimeoutCause WithDeadline WithDeadlineCause", clock, useTimeout},

	{"math/rand", "", "* -New -NewSource -NewZipf", random, useRand},
	{"math/rand/v2", "", "* -New -NewPCG -NewChaCha8 -NewZipf", random, useRand},
	{"crypto/rand", "", "*", random, useRand},
	{"hash/maphash", "", "MakeSeed", random, useRand},
	{"github.com/google/uuid", "", "New NewString NewRandom NewUUID NewV6 NewV7 NewDCEGroup NewDCEPerson NewDCESecurity", random, useUUID},
	{"github.com/gofrs/uuid/v5", "", "NewV1 NewV4 NewV6 NewV7", random, useUUID},
	{"github.com/oklog/ulid/v2", "", "Make Now", random, useUUID},
	{"github.com/rs/xid", "", "New", random, useUUID},
	{"github.com/segmentio/ksuid", "", "New NewRandom", random, useUUID},

	{"sync", "WaitGroup", "Go", goroutine, useGo},
	{"golang.org/x/sync/errgroup", "Group", "Go TryGo", goroutine, useGo},
	{"sync", "WaitGroup", "Wait", block, useWait},
	{"sync", "Cond", "Wait", block, useWait},
	{"golang.org/x/sync/errgroup", "Group", "Wait", block, useWait},
	{"golang.org/x/sync/semaphore", "Weighted", "Acquire", block, useWait},

	{"os", "", "Getenv LookupEnv Environ ExpandEnv Hostname Getpid Getppid Getuid Getgid Getwd Executable TempDir UserHomeDir UserConfigDir UserCacheDir Getpagesize", effect, useInput},
	{"os", "", "Chdir Chmod Chown Chtimes Clearenv CopyFS Create CreateTemp DirFS Exit FindProcess Lchown Link Lstat Mkdir MkdirAll MkdirTemp NewFile Open OpenFile OpenInRoot OpenRoot Pipe ReadDir ReadFile Readlink Remove RemoveAll Rename Setenv StartProcess Stat Symlink Truncate Unsetenv WriteFile", effect, useStep},
	{"os", "File", "*", effect, useStep},
	{"os", "Root", "*", effect, useStep},
	{"os/exec", "", "* -Command", effect, useStep},
	{"os/exec", "Cmd", "Run Start Output CombinedOutput Wait", effect, useStep},
	{"os/user", "", "*", effect, useInput},
	{"os/signal", "", "*", effect, useStep},
	{"io/ioutil", "", "ReadFile WriteFile ReadDir TempFile TempDir", effect, useStep},
	{"path/filepath", "", "Walk WalkDir Glob Abs EvalSymlinks", effect, useStep},
	{"syscall", "", "*", effect, useStep},
	{"runtime", "", "NumGoroutine NumCPU GOMAXPROCS ReadMemStats", effect, useInput},

	{"net", "", "Dial DialTimeout DialIP DialTCP DialUDP DialUnix Listen ListenIP ListenPacket ListenTCP ListenUDP ListenUnix Interfaces InterfaceAddrs LookupAddr LookupCNAME LookupHost LookupIP LookupMX LookupNS LookupPort LookupSRV LookupTXT ResolveIPAddr ResolveTCPAddr ResolveUDPAddr", effect, useStep},
	{"net", "Conn", "*", effect, useStep},
	{"net", "Dialer", "*", effect, useStep},
	{"net", "Resolver", "*", effect, useStep},
	{"net/http", "", "Get Head Post PostForm ListenAndServe ListenAndServeTLS Serve ServeTLS", effect, useStep},
	{"net/http", "Client", "Do Get Head Post PostForm", effect, useStep},
	{"net/http", "Transport", "RoundTrip", effect, useStep},
	{"net/http", "RoundTripper", "RoundTrip", effect, useStep},
	{"net/http", "Server", "ListenAndServe ListenAndServeTLS Serve ServeTLS Shutdown", effect, useStep},
	{"net/smtp", "", "SendMail Dial", effect, useStep},
	{"net/rpc", "Client", "Call Go", effect, useStep},
	{"database/sql", "", "Open OpenDB", effect, useStep},
	{"database/sql", "DB", "* -Stats", effect, useStep},
	{"database/sql", "Conn", "*", effect, useStep},
	{"database/sql", "Tx", "*", effect, useStep},
	{"database/sql", "Stmt", "*", effect, useStep},
	{"database/sql", "Rows", "*", effect, useStep},
	{"html/template", "", "ParseFiles ParseGlob", effect, useStep},
	{"text/template", "", "ParseFiles ParseGlob", effect, useStep},

	{"fmt", "", "Print Printf Println", effect, useLog},
	{"fmt", "", "Scan Scanf Scanln", effect, useStep},
	{"log", "", "* -New -Default -Flags -Prefix -Writer", effect, useLog},
	{"log", "Logger", "Print Printf Println Fatal Fatalf Fatalln Panic Panicf Panicln Output", effect, useLog},
	{"log/slog", "", "Debug DebugContext Info InfoContext Warn WarnContext Error ErrorContext Log LogAttrs", effect, useLog},

	// The word is split, because internal/archtest searches for it.
	{"context", "", "Background TO" + "DO", context, useBody},

	{facePath + "/embedded", "", "*", client, useVerb},
	{facePath, "", "Dial", client, useVerb},
}

const useVerb = "its calls are not journaled, so every replay repeats them; pass the workflow context itself: child.Run(ctx, in)"

// forbidden returns the rules, by package.
var forbidden = sync.OnceValue(func() map[string][]rule {
	m := map[string][]rule{}
	for _, r := range rules {
		m[r.pkg] = append(m[r.pkg], r)
	}
	return m
})

// ruleFor returns the rule that a function breaks.
func ruleFor(f *types.Func) (rule, bool) {
	if f.Pkg() == nil {
		return rule{}, false
	}
	recv := ""

	if v := f.Signature().Recv(); v != nil {
		if n := namedType(v.Type()); n != nil {
			recv = n.Obj().Name()
		} else {
			return rule{}, false
		}
	}

	for _, r := range forbidden()[f.Pkg().Path()] {
		if r.recv == recv && r.matches(f.Name()) {
			return r, true
		}
	}

	return rule{}, false
}

func (r rule) matches(name string) bool {
	all := false
	for word := range strings.FieldsSeq(r.names) {
		switch {
		case word == "*":
			all = true
		case word == name:
			return true
		case strings.TrimPrefix(word, "-") == name:
			return false
		}
	}
	return all
}
