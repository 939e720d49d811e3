package cli

import (
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"slices"

	"github.com/perdure/perdure/internal/fault"
)

// hasPassword reports whether a URL has a password.
func hasPassword(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false // the code that opens the URL reports what is wrong
	}
	_, in := u.User.Password()
	return in || slices.ContainsFunc(passwordParameters, u.Query().Has)
}

// checkPassword refuses a password of the database that other users can read: in a configuration
// file with the wrong mode, and in production also on the command line. Without --production it
// only warns of a password on the command line, because databases for development often have one.
func (f *serveFlags) checkPassword(store string, log *slog.Logger) error {
	if !hasPassword(store) {
		return nil
	}
	switch place := f.from["store"]; {
	case place == flagOrigin && f.production:
		return fault.WithHint(fault.New(fault.Invalid, "--store has a password, and other users of this machine can read the arguments of a process"),
			"use $PERDURE_STORE, a configuration file that only this user can read, or a password file ($PGPASSFILE)")
	case place == flagOrigin:
		log.Warn("--store has a password, and other users of this machine can read the arguments of a process; use $PERDURE_STORE instead")
	case f.from.file("store"):
		return checkOwnerReads("the password of the store", configFile(f.config))
	}
	return nil
}

// checkOwnerReads refuses a configuration file with a secret that other users can read. For a file
// that contains nothing but a secret, checkPrivate has a weaker rule: a group may read it, because
// Kubernetes mounts secrets like that.
func checkOwnerReads(what, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return nil // the code that reads the file reports what is wrong
	}
	if info.Mode().Perm()&fs.FileMode(0o044) != 0 {
		return fault.WithHint(fault.New(fault.Invalid, "other users of this machine can read %s in %s", what, file), "chmod 600 %s", file)
	}
	return nil
}
