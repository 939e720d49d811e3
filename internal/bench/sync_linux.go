package bench

import (
	"os"
	"syscall"
)

// syncData makes the contents of a file durable, as databases do.
func syncData(file *os.File) error { return syscall.Fdatasync(int(file.Fd())) }
