package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Mode says how a server is stopped. The names come from pg_ctl.
type Mode int

const (
	// Fast rolls back open transactions, disconnects the clients, writes a checkpoint and exits.
	Fast Mode = iota
	// Immediate exits immediately without a checkpoint. The next start recovers from the log, as
	// after a crash.
	Immediate
)

// String returns pg_ctl's name of the mode.
func (m Mode) String() string {
	switch m {
	case Fast:
		return "fast"
	case Immediate:
		return "immediate"
	default:
		return "mode " + strconv.Itoa(int(m))
	}
}

const (
	// startTimeout bounds initdb and start. Both usually take less than a second, but can take more
	// than a minute while other tests keep the disk busy.
	startTimeout = 3 * time.Minute
	// stopTimeout bounds a stop, including the checkpoint of a fast stop.
	stopTimeout = 3 * time.Minute
	// readyInterval is how often a starting server is asked whether it accepts connections.
	readyInterval = 10 * time.Millisecond
	// superuser is the role that owns everything on a test server.
	superuser = "postgres"
)

// Servers listen on ports below Linux's range for outgoing connections, which starts at 32768. So
// while a server is down, no outgoing connection can occupy its port, and a client that keeps
// dialling it cannot connect to itself.
const firstPort, lastPort = 20000, 31999

// Options configure a server. The zero value is a server for fast tests.
type Options struct {
	// Fsync makes commits survive a crash of the machine, and makes them as slow as the disk. It is
	// for benchmarks and tests of durability. Default: off, with full_page_writes off too.
	Fsync bool
	// Settings are further lines of postgresql.conf; they override the defaults of this package.
	Settings map[string]string
	// Dir is an existing directory for the data directory, for example a small tmpfs that the test
	// fills. The server's user must be able to reach it. Default: the temporary directory.
	Dir string
	// InitArgs are further arguments of initdb, such as "--wal-segsize=1". With such arguments, the
	// server cannot start from the template and has to run initdb.
	InitArgs []string
	// Env are further environment variables of the server, such as an LD_PRELOAD that shifts its
	// clock.
	Env []string
}

// Server is a private PostgreSQL server. Its methods may be called from any goroutine. Methods that
// change its state wait for each other. Address, password and data survive a restart.
type Server struct {
	home     *home
	binaries string
	user     *serverUser // nil: the user of this process
	env      []string
	port     int
	password string
	idle     chan *pgx.Conn // connections that operator keeps for reuse; nil if it keeps none

	mu      sync.Mutex
	process *process // nil while the server is down
	closed  bool
}

// Open starts a server with its own data directory. Most callers want [Start] or [URL]; Open is for
// programs that are not tests. The caller closes the server. The server also ends when the calling
// process ends.
func Open(ctx context.Context, o Options) (_ *Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	binaries, err := findBinaries(debianBinaries)
	if err != nil {
		return nil, err
	}
	user, err := findServerUser()
	if err != nil {
		return nil, err
	}
	home, err := newHome(o.Dir, user)
	if err != nil {
		return nil, err
	}
	s := &Server{home: home, binaries: binaries, user: user, env: o.Env}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()

	if err := s.initialize(ctx, o.InitArgs); err != nil {
		return nil, err
	}
	if err := s.configure(o); err != nil {
		return nil, err
	}
	// Another process may take the port between our check and the bind of the server, so try
	// several.
	for range 10 {
		if s.port, err = FreePort(); err != nil {
			return nil, err
		}
		err = s.Start(ctx)
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// URL returns the URL of a database on s for the superuser. The database need not exist, and the
// server need not run.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.password),
		Host:     s.Addr(),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Addr returns host and port on which s listens whenever it runs.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Port returns the TCP port on which s listens whenever it runs.
func (s *Server) Port() int { return s.port }

// DataDir returns the data directory.
func (s *Server) DataDir() string { return s.home.data() }

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return s.home.log() }

// PID returns the process id of the postmaster, for strace and signals, or 0 while s is down.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up() {
		return 0
	}
	return s.process.pid()
}

// Start starts s after [Server.Stop] or [Server.Kill] and waits until it accepts connections.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start(ctx)
}

// Stop stops s and waits until it is down. Stopping a server that is down changes nothing.
func (s *Server) Stop(mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(mode)
}

// Restart stops s and starts it again with the same address and data.
func (s *Server) Restart(ctx context.Context, mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stop(mode); err != nil {
		return err
	}
	return s.start(ctx)
}

// Kill kills the postmaster and all its backends with SIGKILL, as a power failure would. Unlike in
// a power failure, data that they handed to the operating system is kept, even without fsync. After
// Kill returns, none of them can commit. [Server.Start] recovers.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up() {
		return nil
	}

	// A stopped postmaster neither starts backends nor reaps dead ones. So the list of
	// its backends below is complete, and no process id in it can belong to an unrelated process.
	pid := s.process.pid()
	if err := s.process.signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop postmaster %d: %w", pid, err)
	}
	if err := waitStopped(pid, stopTimeout); err != nil {
		return errors.Join(err, s.process.signal(syscall.SIGCONT))
	}

	backends, err := children(pid)
	if err != nil {
		return errors.Join(fmt.Errorf("list backends of %d: %w", pid, err), s.process.signal(syscall.SIGCONT))
	}

	for _, backend := range backends {
		// The backend may have ended by itself. In that case it is a zombie and the signal has no
		// effect.
		if err := syscall.Kill(backend, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return errors.Join(fmt.Errorf("kill backend %d: %w", backend, err), s.process.signal(syscall.SIGCONT))
		}
	}

	if err := s.process.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill postmaster %d: %w", pid, err)
	}
	if err := s.process.wait(stopTimeout); err != nil {
		return err
	}
	s.process = nil

	// A killed backend takes a moment to end, and its new parent, init, takes a moment to reap it.
	return waitGone(backends, stopTimeout)
}

// Freeze stops the postmaster and all its backends for a while, as when the machine is paused.
// Afterwards they continue. Existing connections stay open, and new connections wait.
func (s *Server) Freeze(lasts time.Duration) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up() {
		return nil
	}

	// As in Kill: a stopped postmaster starts no backends.
	pid := s.process.pid()
	if err := s.process.signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop postmaster %d: %w", pid, err)
	}
	defer func() { err = errors.Join(err, s.process.signal(syscall.SIGCONT)) }()
	if err := waitStopped(pid, stopTimeout); err != nil {
		return err
	}
	backends, err := children(pid)
	if err != nil {
		return fmt.Errorf("list backends of %d: %w", pid, err)
	}

	for _, backend := range backends {
		if err := syscall.Kill(backend, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop backend %d: %w", backend, err)
		}
		defer func() {
			// The postmaster has not reaped the backend, so the process id is still its own.
			if e := syscall.Kill(backend, syscall.SIGCONT); e != nil && !errors.Is(e, syscall.ESRCH) {
				err = errors.Join(err, fmt.Errorf("continue backend %d: %w", backend, e))
			}
		}()
	}
	time.Sleep(lasts)
	return nil
}

// Close stops s, if it runs, and removes its directory. Closing twice is allowed.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.operator().close()
	err := s.stop(Immediate)
	removeSharedMemory(s.home.data())
	return errors.Join(err, s.home.remove())
}

// up reports whether the server process runs; it may have ended by itself. The caller holds s.mu.
func (s *Server) up() bool {
	if s.process == nil {
		return false
	}
	select {
	case <-s.process.exited:
		s.process = nil
		return false
	default:
		return true
	}
}

// start starts the server and waits until it accepts connections. The caller holds s.mu.
func (s *Server) start(ctx context.Context) error {
	if s.closed {
		return errors.New("start: the server is closed")
	}
	if s.up() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	for waited := false; ; waited = true {
		err := s.launch(ctx)
		// Backends of the previous postmaster keep its memory and its port until they notice its
		// end, so try again. A port that is taken at the first try belongs to another process.
		if !errors.Is(err, errStillInUse) && !(waited && errors.Is(err, errPortTaken)) {
			return err
		}
		select {
		case <-time.After(readyInterval):
		case <-ctx.Done():
			return err
		}
	}
}

// launch tries to start the server process.
func (s *Server) launch(ctx context.Context) error {
	logged, err := os.OpenFile(s.home.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer logged.Close()
	before, err := logged.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}

	cmd := s.command("postgres", "-D", s.home.data(), "-p", strconv.Itoa(s.port))
	cmd.Env = append(cmd.Env, s.env...)
	cmd.Stdout, cmd.Stderr = logged, logged
	p, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}

	if err := s.awaitReady(ctx, p); err != nil {
		// The errors are ignored: the process is our child, so it cannot refuse SIGKILL.
		_ = p.signal(syscall.SIGKILL)
		_ = p.wait(stopTimeout)
		text := s.logSince(before)
		switch {
		case strings.Contains(text, "Address already in use"):
			err = fmt.Errorf("%w: port %d", errPortTaken, s.port)
		case strings.Contains(text, "pre-existing shared memory block"):
			err = errStillInUse
		}
		return fmt.Errorf("start postgres: %w; its log says:\n%s", err, text)
	}

	s.process = p
	return nil
}

// errPortTaken means that another process listens on the port of the server.
var errPortTaken = errors.New("port is taken")

// errStillInUse means that backends of an earlier postmaster still run.
var errStillInUse = errors.New("backends of the previous server still run")

// awaitReady waits until the server accepts connections, has ended, or ctx has ended.
func (s *Server) awaitReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A ping hangs if another process on the port accepts the connection and never answers. So the
	// end of our server cancels the ping.
	stop := make(chan struct{})
	defer close(stop)

	go func() {
		select {
		case <-p.exited:
			cancel()
		case <-stop:
		}
	}()

	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for {
		err := s.ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			select {
			case <-p.exited:
				return errors.New("the server ended while starting")
			default:
			}
			return fmt.Errorf("not ready: %w (last answer: %w)", context.Cause(ctx), err)
		}
	}
}

// ping succeeds when s answers on its port. Another test server with the same password may listen
// on the port, while s has not noticed yet that the port is taken. The data directory distinguishes
// the two servers.
func (s *Server) ping(ctx context.Context) error {
	conn, err := pgconn.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	results, err := conn.Exec(ctx, "show data_directory").ReadAll()
	if err != nil {
		return err
	}
	if got := string(results[0].Rows[0][0]); got != s.home.data() {
		return fmt.Errorf("the server on port %d is another one, with data directory %s", s.port, got)
	}
	return nil
}

// stop stops the server process and waits for its end. The caller holds s.mu.
func (s *Server) stop(mode Mode) error {
	if !s.up() {
		return nil
	}
	signal := syscall.SIGINT
	if mode == Immediate {
		signal = syscall.SIGQUIT
	}
	if err := s.process.signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop postgres (%s): %w", mode, err)
	}
	if err := s.process.wait(stopTimeout); err != nil {
		return fmt.Errorf("stop postgres (%s): %w", mode, err)
	}
	s.process = nil
	return nil
}

// configure appends the settings to postgresql.conf, where the last line with a name applies. The
// caller's settings replace the defaults of this package.
func (s *Server) configure(o Options) error {
	fsync := "off"
	if o.Fsync {
		fsync = "on"
	}
	settings := map[string]string{
		"listen_addresses": "127.0.0.1",
		// No Unix socket: its path could be too long, and production uses TCP.
		"unix_socket_directories": "",
		"fsync":                   fsync,
		"full_page_writes":        fsync,
		"max_connections":         "200",
		"shared_buffers":          "64MB",
		// Dynamic shared memory in files of the data directory is removed with it, also after kill
		// -9.
		"dynamic_shared_memory_type": "mmap",
		"log_line_prefix":            "%m [%p] %q%d %a ",
		"log_timezone":               "UTC",
	}
	maps.Copy(settings, o.Settings)

	file, err := os.OpenFile(filepath.Join(s.home.data(), "postgresql.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	if _, err := file.WriteString("\n# pgtest\n" + text.String()); err != nil {
		return err
	}
	return file.Close()
}

// logSince returns what the server has logged after an offset, for an error message.
func (s *Server) logSince(offset int64) string {
	text, err := os.ReadFile(s.home.log())
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return strings.TrimSpace(string(text[min(offset, int64(len(text))):]))
}

// FreePort returns a port on which no process listens at the moment. The system gives such a port
// to no connection by itself, so a server that restarts finds it free again.
func FreePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		var l net.Listener
		l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d: %w", firstPort, lastPort, err)
}
