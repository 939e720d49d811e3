package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// process is a child process that does not outlive us.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended and was waited for
}

// startProcess starts cmd. If the kernel supports it, the child gets a signal when this process
// ends.
//
// The parent death signal is sent when the *thread* that forked the child ends. So a goroutine that
// keeps its thread starts the child and stays until the child has ended.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		// The log of the server says more than the exit status.
		_ = cmd.Wait()
		close(p.exited)
	}()

	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// pid returns the process id.
func (p *process) pid() int { return p.cmd.Process.Pid }

// signal sends a signal. It returns os.ErrProcessDone when the process has ended.
func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// wait waits for the end of the process.
func (p *process) wait(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
		return fmt.Errorf("process %d still runs after %v", p.pid(), limit)
	}
}

// waitGone waits until no process is left, except zombies.
func waitGone(pids []int, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for _, pid := range pids {
		for isRunning(pid) {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d still runs after %v", pid, limit)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// waitStopped waits until a process that was sent SIGSTOP has stopped, or has ended.
func waitStopped(pid int, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for isRunning(pid) && !isStopped(pid) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d has not stopped after %v", pid, limit)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// command prepares a PostgreSQL program: with the server's user, a clean environment, and a working
// directory that it can enter.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	return s.run(filepath.Join(s.binaries, name), args...)
}

// run prepares any program in the same way. No PG… variable of the caller's environment reaches it.
func (s *Server) run(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = s.home.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home.dir, "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = dieWithParent(s.user)
	return cmd
}

// output runs a short program to its end and reports its output when it fails.
func (s *Server) output(ctx context.Context, cmd *exec.Cmd) (string, error) {
	out, err := os.CreateTemp(s.home.dir, "output-")
	if err != nil {
		return "", err
	}

	defer func() {
		_ = out.Close()
		_ = os.Remove(out.Name()) // it is removed with the home in any case
	}()

	cmd.Stdout, cmd.Stderr = out, out
	p, err := startProcess(cmd)
	if err != nil {
		return "", fmt.Errorf("run %s: %w", filepath.Base(cmd.Path), err)
	}

	select {
	case <-p.exited:
	case <-ctx.Done():
		err = context.Cause(ctx)
		_ = p.signal(syscall.SIGKILL) // our own child, so the signal cannot be refused
		<-p.exited
	}

	text, readErr := os.ReadFile(out.Name())
	if err == nil && !cmd.ProcessState.Success() {
		err = errors.New(cmd.ProcessState.String())
	}
	if err != nil {
		return "", fmt.Errorf("run %s: %w; it says:\n%s", filepath.Base(cmd.Path), err, text)
	}

	return string(text), readErr
}
