package host_test

import (
	"os/exec"
	"testing"

	"github.com/perdure/perdure/internal/cluster/host"
	"github.com/perdure/perdure/internal/model"
)

func TestGone(t *testing.T) {
	t.Parallel()
	self := host.Self(model.NodeID{1}, "test")
	if self.PIDStart == 0 {
		t.Fatal("no start time of this process: is this Linux?")
	}
	if host.IsGone(self) {
		t.Error("this process is not gone")
	}
	other := self
	other.PIDStart++
	if !host.IsGone(other) {
		t.Error("a process id that was given to another process proves the death of the first")
	}
	other = self
	other.BootID = "another boot"
	other.PIDStart++
	if host.IsGone(other) {
		t.Error("nothing can be proven about another boot")
	}
	other = self
	other.Namespace = "pid:[1]"
	other.PIDStart++
	if host.IsGone(other) {
		t.Error("nothing can be proven about another process id namespace")
	}

	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	dead := self
	dead.PID = cmd.Process.Pid
	if !host.IsGone(dead) {
		t.Error("a process that has ended is gone")
	}
}
