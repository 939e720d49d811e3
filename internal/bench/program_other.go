//go:build !linux

package bench

import (
	"os"
	"syscall"
)

func serverAttributes() *syscall.SysProcAttr { return nil }

func signalServer(p *os.Process, signal syscall.Signal) error { return p.Signal(signal) }
