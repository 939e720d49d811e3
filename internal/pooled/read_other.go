//go:build !unix

package pooled

import "errors"

// canPull says that every connection has its own buffer here.
const canPull = false

// readNow is not called.
func readNow(uintptr, []byte) (n int, again bool, err error) { return 0, false, errors.ErrUnsupported }
