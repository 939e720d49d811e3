// Package dialtest runs test suites of apps a second time, over a connection.
//
// A suite that imports this package opens its apps with embedded.Open or attach.Embed. If the
// environment variable [Env] is set, each of these apps gets a server in front of its engine, and
// reaches it with perdure.Dial over a connection in memory. So the suite tests that a program
// behaves the same on both sides of the wire, also in the virtual time of testing/synctest.
package dialtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/batchjob"
	"github.com/perdure/perdure/internal/codec"
	"github.com/perdure/perdure/internal/delayed"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/singleton"
)

// Env is the environment variable that puts connections between apps and their engines:
//
//	1      all tests of a suite, on one kind of store each
//	all    all tests, on all kinds of stores
//	also   the suite in process first, then a part of it over connections. If -run selects tests,
//	       all selected tests run over connections, not only that part
const Env = "PERDURE_TEST_DIAL"

// over is true while Open opens apps over connections.
var over atomic.Bool

func init() {
	attach.Through = Open
	over.Store(os.Getenv(Env) == "1" || os.Getenv(Env) == "all")
}

// Some returns the kinds of stores that a test runs on. The wire does not depend on the store, so a
// test over connections runs only on the first kind, unless PERDURE_TEST_DIAL is "all". The
// conformance suite checks that all stores give the same answers, so in short mode a test runs on
// one kind. The name of the test decides which one, so that each kind gets its share of the tests.
func Some(t testing.TB, kinds []string) []string {
	switch {
	case over.Load() && os.Getenv(Env) != "all":
		return kinds[:1]
	case testing.Short() && os.Getenv(Env) != "all":
		i := crc32.ChecksumIEEE([]byte(t.Name())) % uint32(len(kinds))
		return kinds[i : i+1]
	default:
		return kinds
	}
}

// dialed counts the apps that were opened over a connection.
var dialed atomic.Int64

// Suite is the suite of a package, which Run runs as PERDURE_TEST_DIAL says.
type Suite struct {
	m   *testing.M
	dir string
}

// Main returns the suite of a package, by its directory in the module.
func Main(m *testing.M, dir string) Suite { return Suite{m, dir} }

// Run runs the tests and returns the exit code. Over connections it leaves out the exceptions. It
// also fails if it has run all tests that belong over connections, and none of them has opened an
// app over a connection.
func (s Suite) Run() int {
	flag.Parse()
	if !over.Load() {
		if code := s.m.Run(); code != 0 || os.Getenv(Env) != "also" {
			return code
		}
		over.Store(true)
		if flag.Lookup("test.run").Value.String() == "" {
			set("test.run", parts[s.dir])
		}
	}

	skip := []string{}
	if own := flag.Lookup("test.skip").Value.String(); own != "" {
		skip = append(skip, own)
	}
	for name := range Exceptions[s.dir] {
		skip = append(skip, "^"+strings.ReplaceAll(name, "/", "$/^")+"$")
	}
	slices.Sort(skip)
	set("test.skip", strings.Join(skip, "|"))
	code := s.m.Run()
	whole := flag.Lookup("test.run").Value.String() == parts[s.dir] && flag.Lookup("test.list").Value.String() == ""
	if code == 0 && whole && dialed.Load() == 0 {
		fmt.Fprintln(os.Stderr, "no test has opened an app over a connection")
		return 1
	}
	return code
}

// set sets a flag of the testing package.
func set(name, value string) {
	if err := flag.Set(name, value); err != nil {
		panic(err)
	}
}

// buffer is how many bytes may be on their way in one direction of a connection.
const buffer = 1 << 18

// drain is how long the calls of a closed app may take.
const drain = 5 * time.Second

// Open opens the app of an engine. Over connections it starts a server in front of the engine, and
// the app dials that server.
func Open(ctx context.Context, cfg attach.Config, defs ...perdure.Definition) (*perdure.App, error) {
	if !over.Load() {
		return attach.Open(ctx, cfg, defs...)
	}
	dialed.Add(1)
	s, err := serve(ctx, cfg)
	if err != nil {
		return nil, err
	}

	closing, closed := cfg.OnClosing, cfg.OnClose
	cfg.OnClosing = nil
	cfg.OnClose = func() error { // the server ends after its only app
		if closing != nil {
			closing()
		}
		s.close()
		if closed != nil {
			return closed()
		}
		return nil
	}
	app, err := attach.Dial(ctx, cfg, "grpc://localhost:7800", func(ctx context.Context, _ string) (net.Conn, error) {
		return s.listener.DialContext(ctx)
	}, defs...)
	if err != nil {
		s.close()
		return nil, err
	}
	return app, nil
}

// server is a server in memory.
type server struct {
	listener      *bufconn.Listener
	grpc          *grpcapi.Server
	stopSchedules func()
	stopCalls     func() // stops the delayed calls
	stopRegisters func() // stops the registers of singletons
	stopBatches   func()
	ended         sync.WaitGroup
}

// serve starts a server in front of an engine, as node.Serve does.
func serve(ctx context.Context, cfg attach.Config) (*server, error) {
	host, ok := cfg.Backend.(interface {
		batchjob.Host
		singleton.Host
	})
	if !ok {
		return nil, errors.New("the engine cannot run schedules and singletons")
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}

	s := &server{listener: bufconn.Listen(buffer)}
	s.grpc = grpcapi.New(grpcapi.Config{
		Backend: cfg.Backend, Authenticator: authn.Open{Tenant: cfg.Tenant}, Log: cfg.Logger, Version: cfg.Version,
		MaxPayload: codec.MaxStored(cfg.Payloads, cfg.MaxPayload),
	})
	var err error
	if s.stopSchedules, err = schedule.ServeAll(ctx, host, log); err != nil {
		return nil, err
	}
	if s.stopCalls, err = delayed.ServeAll(ctx, host, log); err != nil {
		s.stopSchedules()
		return nil, err
	}
	if s.stopRegisters, err = singleton.ServeAll(ctx, host, log); err != nil {
		s.stopSchedules()
		s.stopCalls()
		return nil, err
	}
	if s.stopBatches, err = batchjob.ServeAll(ctx, host, log); err != nil {
		s.stopSchedules()
		s.stopCalls()
		s.stopRegisters()
		return nil, err
	}
	s.ended.Go(func() { _ = s.grpc.Serve(s.listener) }) // Serve returns when close stops the server
	return s, nil
}

func (s *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	s.grpc.Shutdown(ctx)
	s.ended.Wait()
	s.stopSchedules()
	s.stopCalls()
	s.stopRegisters()
	s.stopBatches()
}
