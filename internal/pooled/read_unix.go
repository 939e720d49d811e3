//go:build unix

package pooled

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// canPull says that readNow works here.
const canPull = true

// readNow reads what has arrived. again reports that nothing has arrived.
func readNow(fd uintptr, b []byte) (n int, again bool, err error) {
	for {
		n, err = syscall.Read(int(fd), b)
		switch {
		case err == nil:
			return n, false, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return 0, true, nil
		default:
			return 0, false, &net.OpError{Op: "read", Err: os.NewSyscallError("read", err)}
		}
	}
}
