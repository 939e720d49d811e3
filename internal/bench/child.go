package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// jobVariable is the environment variable with the job of a child process, as JSON.
const jobVariable = "PERDURE_BENCH_JOB"

// IsChild reports whether this process was started to run a measurement. Such a process must call
// Child and nothing else.
func IsChild() bool { return os.Getenv(jobVariable) != "" || os.Getenv(roleVariable) != "" }

// Child runs the measurement that this process was started for, and prints the result for its
// parent. systems maps names to systems. Perdure itself and the bare committer are always included.
// If this process is the server or the worker of a system, Child runs that part instead.
func Child(ctx context.Context, systems map[string]Peer) error {
	if os.Getenv(jobVariable) == "" {
		return play(ctx)
	}
	var job Job
	if err := json.Unmarshal([]byte(os.Getenv(jobVariable)), &job); err != nil {
		return fmt.Errorf("$%s: %w", jobVariable, err)
	}
	system, known := systems[job.System]
	switch job.System {
	case Perdure:
		system, known = Peer{Workflows: openPerdure, Queue: openPerdureQueue, Entities: true, Values: true}, true
	case Dial:
		system, known = DialPeer, true
	case Bare:
		system, known = BarePeer, true
	}
	if !known {
		return fmt.Errorf("unknown system %q", job.System)
	}

	if job.Profile != "" {
		// Take more samples than usual. The rate must be set before the measurement allocates
		// anything.
		runtime.MemProfileRate = 64 << 10
	}
	result, err := job.run(ctx, system)
	if err != nil {
		return err
	}

	return json.NewEncoder(os.Stdout).Encode(result)
}

// patience is how long a child may take beyond the duration of its job. After that time the parent
// makes the child print its stacks and quit.
const patience = 10 * time.Minute

// spawn runs a job in a separate process.
func spawn(ctx context.Context, command []string, job Job) (r Result, err error) {
	text, err := json.Marshal(job)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, job.Duration+patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	if job.Workload == crash && err != nil && cmd.ProcessState != nil && cmd.ProcessState.String() == "signal: killed" {
		return r, nil
	}

	if err != nil {
		return r, fmt.Errorf("%s of %s on %s: %w\n%s", job.Workload, job.System, job.Place.Kind, errors.Join(err, ctx.Err()), ending(stderr.String()))
	}
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		return r, fmt.Errorf("%s of %s on %s: answer %q: %w", job.Workload, job.System, job.Place.Kind, stdout.String(), err)
	}

	return r, nil
}

// ending returns the end of a text, which is enough to see the error.
func ending(text string) string {
	const most = 8000
	text = strings.TrimSpace(text)
	if len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	return text
}
