package deploy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// helloTimeout is how long a program may take to say hello.
const helloTimeout = 30 * time.Second

// maxChatter is how many bytes a program may print before it says hello: its packages may print
// during initialization.
const maxChatter = 1 << 20

// Build is a program that replays histories with its code.
type Build struct {
	// Version is the version that the program reports; empty if it has none.
	Version string

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Start runs a program and waits for its greeting. Its standard error goes to log.
func Start(ctx context.Context, command []string, log io.Writer) (*Build, error) {
	return start(ctx, command, log, helloTimeout)
}

// start is Start with another time for the greeting.
func start(ctx context.Context, command []string, log io.Writer, patience time.Duration) (*Build, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), Env+"=1")
	cmd.Stderr = log
	cmd.WaitDelay = time.Second // a child of the program may keep the standard error
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fault.New(fault.Invalid, "start %s: %w", command[0], err)
	}

	b := &Build{cmd: cmd, in: in, out: bufio.NewReader(out)}
	// Ignore the errors: the process may already have ended. A child of the process may still have
	// its output.
	late := time.AfterFunc(patience, func() { _, _ = cmd.Process.Kill(), out.Close() })
	err = b.hello()

	if inTime := late.Stop(); err != nil || !inTime {
		_ = cmd.Process.Kill() // the caller gets the reason; how the process ends does not matter
		_ = cmd.Wait()
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("wait for the greeting of %s: %w", command[0], context.Cause(ctx))
		case !inTime:
			return nil, fault.New(fault.Invalid, "%s does not answer within %s: it is not a program of Perdure, or does something else first; "+
				"call embedded.AnswerDeployCheck first in its main function", command[0], patience)
		}
		return nil, fault.New(fault.Invalid, "%s does not answer: call embedded.AnswerDeployCheck first in its main function (%w)", command[0], err)
	}
	return b, nil
}

// hello waits for the greeting.
func (b *Build) hello() error {
	read := 0
	for read < maxChatter {
		line, err := b.out.ReadSlice('\n')
		read += len(line)
		if text, ok := strings.CutPrefix(string(line), greeting); ok {
			return json.Unmarshal([]byte(text), &b.Version)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("the program has ended, or has closed its output: %w", err)
		}
	}
	return fmt.Errorf("the program printed %d bytes and no greeting", read)
}

// Replay lets the program replay a history.
func (b *Build) Replay(history []byte) (v Verdict, err error) {
	if len(history) > MaxHistory {
		return v, fault.New(fault.Exhausted, "the history has %d bytes, at most %d are replayed", len(history), MaxHistory)
	}
	if err := writeFrame(b.in, history); err != nil {
		return v, fmt.Errorf("the program has ended: %w", err)
	}
	line, err := b.out.ReadBytes('\n')
	if err != nil {
		return v, fmt.Errorf("the program has ended during a replay: %w", err)
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return v, fmt.Errorf("the program printed a line that is not a verdict: %w", err)
	}
	return v, nil
}

// Close ends the program.
func (b *Build) Close() error {
	err, ended := b.in.Close(), b.cmd.Wait()
	if errors.Is(ended, exec.ErrWaitDelay) {
		ended = nil // the program has ended well, and a child of it still runs
	}
	return errors.Join(err, ended)
}
