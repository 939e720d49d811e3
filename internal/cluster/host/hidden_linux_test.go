package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// hiddenEnv makes the test binary play a part of TestHiddenProcessIsNotGone.
const hiddenEnv = "PERDURE_HOST_PART"

func TestMain(m *testing.M) {
	switch os.Getenv(hiddenEnv) {
	case "judge":
		fmt.Println(judgeHidden())
	case "live":
		select {} // ends with its namespace
	case "dead":
	default:
		os.Exit(m.Run())
	}
}

// IsGone reports false for a live process of another user whose entry in /proc is hidden.
func TestHiddenProcessIsNotGone(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may mount a /proc with hidepid=2")
	}
	// The child has its own namespaces, so that no other process sees the mount and its options.
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), hiddenEnv+"=judge")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("this system allows no namespaces: %v", err)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	said := strings.TrimSpace(string(out))
	if reason, skip := strings.CutPrefix(said, "skip: "); skip {
		t.Skip(reason)
	}
	if want := "hidden, live: false, dead: true"; said != want {
		t.Errorf("the judge says %q, want %q", said, want)
	}
}

// The first process of the machine is alive: root may signal it, and other users get EPERM.
func TestProbeOfTheFirstProcess(t *testing.T) {
	t.Parallel()
	if err := probe(1); errors.Is(err, errNoProcess) {
		t.Error("there is no process 1")
	}
}

// judgeHidden mounts a /proc that hides the processes of other users, becomes another user, and
// returns whether IsGone reports two processes of root as gone: one that runs and one that has
// ended.
func judgeHidden() string {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return "skip: mounts cannot be made private: " + err.Error()
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, "hidepid=2"); err != nil {
		return "skip: /proc cannot be mounted with hidepid=2: " + err.Error()
	}

	live, err := startPart("live")
	if err != nil {
		return err.Error()
	}
	info := Self(model.NodeID{1}, "test")
	info.PID = live.Process.Pid
	p, err := stat(info.PID)
	if err != nil {
		return err.Error()
	}
	info.PIDStart = p.start
	ended, err := startPart("dead")
	if err == nil {
		err = ended.Wait()
	}
	if err != nil {
		return err.Error()
	}

	const nobody = 65534
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
		return err.Error()
	}
	state := "hidden"
	if _, err := stat(info.PID); !errors.Is(err, os.ErrNotExist) {
		state = fmt.Sprintf("not hidden: %v", err)
	}
	dead := info
	dead.PID = ended.Process.Pid
	return fmt.Sprintf("%s, live: %v, dead: %v", state, IsGone(info), IsGone(dead))
}

func startPart(part string) (*exec.Cmd, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hiddenEnv+"="+part)
	return cmd, cmd.Start()
}
