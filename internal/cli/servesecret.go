package cli

import (
	"log/slog"
	"net/url"

	"github.com/perdure/perdure/internal/fault"
)

// hasPassword reports whether a URL has a password.
func hasPassword(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false // the code that opens it says what is wrong
	}
	_, in := u.User.Password()
	return in || u.Query().Has("password")
}

// checkPassword refuses a password of the database that others can read: in a configuration file
// with the wrong mode, and in production on the command line.
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
		return checkPrivate("the password of the store", configFile(f.config))
	}
	return nil
}
