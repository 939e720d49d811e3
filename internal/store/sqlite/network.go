package sqlite

import (
	"fmt"
	"io/fs"

	"github.com/perdure/perdure/internal/fault"
)

// checkPlace refuses a place where a file can be damaged or replaced by others: a network file
// system, where neither our lock nor the shared memory of the log works between machines, and a
// file that every user of the machine may write.
func checkPlace(cfg *Config, dir string) error {
	look := cfg.fileSystem
	if look == nil {
		look = networkFileSystem
	}
	if name := look(dir); name != "" {
		return &fault.Error{
			Kind: fault.Invalid, Text: fmt.Sprintf("%s is on the network file system %s, where two machines could write one file", dir, name),
			Hint: "use a local disk, or PostgreSQL for a store that several machines use",
		}
	}
	return nil
}

// checkMode refuses a file that every user of the machine may write.
func checkMode(path string, mode fs.FileMode) error {
	if mode.Perm()&0o002 == 0 {
		return nil
	}
	return &fault.Error{Kind: fault.Invalid, Text: "all users of this machine can write " + path, Hint: "chmod 600 " + path}
}
