package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// The error for a program that does not answer says whether it has ended or has not answered in
// time. A program whose child keeps its output does not hold up the check.
func TestWhyThereIsNoGreeting(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}

	for what, c := range map[string]struct {
		script   string
		patience time.Duration
		want     string
	}{
		"it ends":            {"exit 1", time.Hour, "does not answer: call embedded.AnswerDeployCheck first in its main function (the program has ended"},
		"it sleeps":          {"exec sleep 1000", 10 * time.Millisecond, "does not answer within 10ms: it is not a program of Perdure"},
		"its child sleeps":   {"sleep 1000 & echo $! >&2; wait", 200 * time.Millisecond, "does not answer within 200ms: it is not a program of Perdure"},
		"it prints too much": {"yes", time.Hour, "bytes and no greeting"},
	} {
		var log bytes.Buffer
		_, err := start(t.Context(), []string{shell, "-c", c.script}, &log, c.patience)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(log.String())); err == nil {
			if child, err := os.FindProcess(pid); err == nil {
				_ = child.Kill() // the child of the shell
			}
		}
	}
}
