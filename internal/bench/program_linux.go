package bench

import (
	"os"
	"syscall"
)

// serverAttributes makes a server end with this process, and puts it into its own process group:
// Ctrl-C in a terminal goes only to this process, which stops the server itself.
func serverAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}

// signalServer sends a signal to the process group of a server.
func signalServer(p *os.Process, signal syscall.Signal) error { return syscall.Kill(-p.Pid, signal) }
