package perdure

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of names and keys, in bytes.
const (
	maxName = 200
	maxKey  = 512
)

// checkName returns an error that says what is wrong with a name. kind says what has the name, for
// example "workflow".
func checkName(kind, name string) error {
	if !textFits(name, maxName) {
		return checkText("the name of "+kind, name, maxName)
	}
	if kind == "workflow" {
		return noSlash(kind, name)
	}
	if kind == "activity" && name == model.AnyKind {
		return fault.New(fault.Invalid, "the name of an activity is %q, which means all activities", name)
	}
	return nil
}

// noSlash refuses a name with a slash, which would look like a name and a key.
func noSlash(kind, name string) error {
	if strings.Contains(name, "/") {
		return fault.New(fault.Invalid, "the name of %s %q contains a slash, which separates it from the key", kind, name)
	}
	return nil
}

// checkTarget returns an error that says what is wrong with the address of another execution.
func checkTarget(a model.Address) error {
	kind, name := "workflow", a.Type
	if activity, task := strings.CutPrefix(a.Type, model.TaskPrefix); task {
		kind, name = "activity", activity
	}
	if err := checkName(kind, name); err != nil {
		return err
	}
	if !textFits(a.Key, maxKey) {
		return checkText("the key of workflow "+a.Type, a.Key, maxKey)
	}
	return nil
}

// textFits reports whether checkText would return nil. It allocates nothing.
func textFits(s string, most int) bool {
	return s != "" && len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// checkText returns an error that says what is wrong with a name or a key.
func checkText(what, s string, most int) error {
	switch {
	case s == "":
		return fault.New(fault.Invalid, "%s is empty", what)
	case len(s) > most:
		return fault.New(fault.Invalid, "%s %.40q… has %d bytes, at most %d are allowed", what, s, len(s), most)
	case !utf8.ValidString(s):
		return fault.New(fault.Invalid, "%s %q is not valid UTF-8", what, s)
	case strings.ContainsFunc(s, unicode.IsControl):
		return fault.New(fault.Invalid, "%s %q contains a control character", what, s)
	}
	return nil
}
