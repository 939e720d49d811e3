package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Program is a server program that the user has installed.
type Program struct {
	Path    string
	Version string // what the program says about its version, in one line
}

// FindProgram finds a program by its path, or by its name in the directories of $PATH if the path
// is "". It runs the program once to ask for its version.
func FindProgram(ctx context.Context, name, path string) (Program, error) {
	if path == "" {
		path = name
	}
	found, err := exec.LookPath(path)
	if err != nil {
		return Program{}, err
	}
	if found, err = filepath.Abs(found); err != nil {
		return Program{}, err
	}

	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, found, "--version").Output()
	version, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err == nil && version == "" {
		err = errors.New("the program printed nothing")
	}
	if err != nil {
		return Program{}, fmt.Errorf("%s --version: %w", found, err)
	}

	return Program{Path: found, Version: strings.TrimSpace(version)}, nil
}

// Start says how a Program runs as a server.
type Start struct {
	Args []string
	// Hidden are prefixes of environment variables that the server does not get, so that the
	// settings of the user do not change the measurement.
	Hidden []string
	Log    string // file for the output of the server
	// Ready returns nil if the server answers. Program.Start calls Ready until it returns nil.
	Ready func(ctx context.Context) error
}

// ServerProcess is a running Program.
type ServerProcess struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when the process has ended
	pids  []int
}

// Times of a server.
const (
	startPatience = time.Minute            // how long a server may take to become ready
	stopPatience  = 10 * time.Second       // how long a server may take to end; then Close kills it
	readyPause    = 100 * time.Millisecond // the pause between two calls of Start.Ready
)

// Start starts the program as a server, and returns when the server is ready. The caller must close
// the ServerProcess. On Linux, the server also ends when this process ends.
func (p Program) Start(ctx context.Context, s Start) (*ServerProcess, error) {
	log, err := os.Create(s.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the server has its own descriptor

	sp := &ServerProcess{cmd: exec.Command(p.Path, s.Args...), log: s.Log, ended: make(chan struct{})}
	sp.cmd.Env = visible(os.Environ(), s.Hidden)
	sp.cmd.Stdout, sp.cmd.Stderr, sp.cmd.Dir = log, log, filepath.Dir(s.Log)
	sp.cmd.SysProcAttr = serverAttributes()
	if err := sp.cmd.Start(); err != nil {
		return nil, err
	}

	go func() {
		defer close(sp.ended)
		_ = sp.cmd.Wait() // the log says why it ended
	}()

	if err := sp.await(ctx, s.Ready); err != nil {
		return nil, errors.Join(sp.explain(fmt.Errorf("%s: %w", p.Path, err)), sp.Close())
	}
	sp.pids = family(sp.cmd.Process.Pid)
	return sp, nil
}

// await asks the server until it is ready.
func (sp *ServerProcess) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-sp.ended:
			return errors.New("the server ended before it was ready")
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready: %w", err)
		case <-time.After(readyPause):
		}
	}
}

// explain adds the end of the server's log to an error.
func (sp *ServerProcess) explain(err error) error {
	text, rerr := os.ReadFile(sp.log)
	if rerr != nil || len(text) == 0 {
		return err
	}
	return fmt.Errorf("%w\n%s", err, ending(string(text)))
}

// Processes implements Parted for each system that has a ServerProcess as an embedded field. An
// installed program may be a script that starts the server, so its child processes also count.
func (sp *ServerProcess) Processes() (servers, workers []int) { return sp.pids, nil }

// Close stops the server and waits until it has ended. It kills a server that does not stop in
// time.
func (sp *ServerProcess) Close() error {
	_ = signalServer(sp.cmd.Process, syscall.SIGTERM) // it may have ended already
	select {
	case <-sp.ended:
		return nil
	case <-time.After(stopPatience):
	}
	err := signalServer(sp.cmd.Process, syscall.SIGKILL)
	<-sp.ended
	return err
}

// visible returns the environment without the variables that have one of the prefixes.
func visible(env, prefixes []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(variable string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(variable, prefix) })
	})
}

// FreePorts returns ports of the loopback interface that no process listens on.
func FreePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that all ports differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
