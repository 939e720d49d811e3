package sqlite

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/perdure/perdure/internal/fault"
)

// checkPlace refuses a directory on a network file system, because our lock and the shared memory
// of the log do not work between machines.
func checkPlace(cfg *Config, dir string) error {
	look := cfg.FileSystem
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

// checkPrivate refuses a directory in which every user of the machine may replace the file. It also
// refuses a file of another user, because that user could not open the files that this process
// would create next to it.
func checkPrivate(dir, path string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return openFailed(dir, err)
	}
	if mode := info.Mode(); mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0 {
		return &fault.Error{Kind: fault.Invalid, Text: "all users of this machine can replace files in " + dir, Hint: "chmod o-w " + dir}
	}

	file, err := os.Stat(path)
	if err != nil {
		return nil // the file does not exist, or Open returns a better error
	}
	if owner, known := ownerOf(file); known && owner != os.Geteuid() {
		return &fault.Error{
			Kind: fault.Denied, Text: fmt.Sprintf("%s belongs to user %d, and this process runs as user %d", path, owner, os.Geteuid()),
			Hint: fmt.Sprintf("run the server as that user, or chown %d %s", os.Geteuid(), path),
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
