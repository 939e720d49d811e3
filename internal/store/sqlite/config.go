package sqlite

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Config says which file to open and how. Only Path is required.
type Config struct {
	// Path is the path of the file, relative to the working directory unless absolute. Open creates
	// the file if it does not exist.
	Path string
	// Shards is the number of shards of a new store. The default is 16. It never changes: for an
	// existing store it must be zero or the number that the store has.
	Shards int
	// ReadOnly opens an existing store for reading while another process owns it. Open takes no
	// lock and runs no migration, and every method that writes fails.
	ReadOnly bool
	// Readers is the maximum number of connections for reading. The default is 4. Further readers
	// wait.
	Readers int
	// WALSize is the size in bytes of the write-ahead log at which the store starts to move the
	// contents of the log into the file, in the background. The default is 16 MiB. A larger size
	// means fewer moves, a longer recovery and more disk space.
	WALSize int64
	// Logger receives problems of the background work, which no caller gets as an error. The
	// default discards them.
	Logger *slog.Logger

	// Private makes Open refuse a file of another user, and a directory in which all users may
	// replace the file. Servers set it.
	Private bool
	// FileSystem returns the name of the network file system of a directory, or an empty text for a
	// local file system. The default asks the operating system. Tests replace it.
	FileSystem func(dir string) string
	vfs        string // for tests: the name of a file system that injects faults
}

const (
	// One process has a few lanes, so few shards are enough. Each shard costs a row, and work at
	// every start of the process.
	defaultShards  = 16
	defaultReaders = 4
	defaultWALSize = 16 << 20
	minWALSize     = 1 << 20
	maxReaders     = 64
)

// withDefaults fills in defaults and reports all problems in one error. Shards stays zero, because
// an existing store has its own number.
func (c Config) withDefaults() (Config, error) {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Path == "" {
		bad("no path is given")
	} else if abs, err := filepath.Abs(c.Path); err != nil {
		bad("path %q: %w", c.Path, err)
	} else {
		c.Path = abs
	}

	// Zero means the number of the existing store, or the default for a new store.
	if c.Shards < 0 || c.Shards > model.MaxShards {
		bad("shards is %d, want 1 to %d, or 0 for the default", c.Shards, model.MaxShards)
	}

	if c.Readers == 0 {
		c.Readers = defaultReaders
	} else if c.Readers < 0 || c.Readers > maxReaders {
		bad("readers is %d, want 1 to %d, or 0 for the default", c.Readers, maxReaders)
	}

	if c.WALSize == 0 {
		c.WALSize = defaultWALSize
	} else if c.WALSize < minWALSize {
		bad("wal size is %d, want at least %d bytes, or 0 for the default", c.WALSize, minWALSize)
	}

	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if err := errors.Join(problems...); err != nil {
		return c, fault.New(fault.Invalid, "sqlite store: %w", err)
	}

	return c, nil
}

// parameters are the parameters of a URL, in the order in which errors list them.
var parameters = []string{"readers", "readonly", "shards", "wal_mib"}

// ParseURL reads file:app.db, file:///var/lib/app.db?shards=16&readonly=true, or a plain path
// without parameters.
func ParseURL(text string) (Config, error) {
	refuse := func(hint, format string, args ...any) (Config, error) {
		err := fault.New(fault.Invalid, "store url %q: "+format, append([]any{text}, args...)...)
		err.Hint = hint
		return Config{}, err
	}

	const example = "write file:app.db or file:///var/lib/app.db"
	// net/url would read file:app.db as an opaque URL and lose escapes, so the parts are cut by
	// hand.
	scheme, rest, found := strings.Cut(text, ":")
	switch {
	case text == "":
		return refuse(example, "is empty")
	case text == ":memory:":
		return refuse("use memory: for a store without a file", "this store lives in a file")
	case !found || strings.ContainsAny(scheme, `/\.`) || len(scheme) == 1:
		// A plain path, for example C:\app.db.
		if strings.ContainsAny(text, "?#") {
			return refuse("write file: in front to give parameters", "is a path with parameters")
		}
		return Config{Path: text}, nil
	case !strings.EqualFold(scheme, "file"):
		return refuse(example, "has scheme %q, want file", scheme)
	}

	rest, fragment, found := strings.Cut(rest, "#")
	if found {
		return refuse("write %23 for a # in the path", "has a fragment %q", fragment)
	}

	raw, query, _ := strings.Cut(rest, "?")
	// file://app.db is a common mistake: app.db would be the host. Refuse it with a hint.
	if after, ok := strings.CutPrefix(raw, "//"); ok {
		host, path, _ := strings.Cut(after, "/")
		if host != "" && host != "localhost" {
			return refuse("write file:"+host+" for a relative path, file:///"+host+" for an absolute one", "names the host %q", host)
		}
		raw = "/" + path
	}

	path, err := url.PathUnescape(raw)
	if err != nil {
		return refuse("write %25 for a % in the path", "%v", err)
	}
	if runtime.GOOS == "windows" && len(path) > 2 && path[2] == ':' {
		path = strings.TrimPrefix(path, "/") // /C:/app.db
	}
	if path == "" || path == "/" {
		return refuse(example, "names no file")
	}

	values, err := url.ParseQuery(query)
	if err != nil {
		return refuse("", "%v", err)
	}
	c := Config{Path: path}
	if err := c.set(values); err != nil {
		return refuse("known parameters are "+strings.Join(parameters, ", "), "%w", err)
	}

	return c, nil
}

// set applies the parameters of a URL and reports all problems in one error.
func (c *Config) set(values url.Values) error {
	var problems []error
	number := func(name string) int {
		n, err := strconv.Atoi(values.Get(name))
		if err != nil || n < 1 {
			problems = append(problems, fmt.Errorf("parameter %s is %q, want a number from 1 on", name, values.Get(name)))
		}
		return n
	}

	// Go through the parameters in the order of their names, so that the error is the same every
	// time.
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)

	for _, name := range names {
		if len(values[name]) > 1 {
			problems = append(problems, fmt.Errorf("parameter %s is given %d times", name, len(values[name])))
			continue
		}

		switch name {
		case "shards":
			c.Shards = number(name)
		case "readers":
			c.Readers = number(name)
		case "wal_mib":
			c.WALSize = int64(number(name)) << 20
		case "readonly":
			on, err := strconv.ParseBool(values.Get(name))
			if err != nil {
				problems = append(problems, fmt.Errorf("parameter %s is %q, want true or false", name, values.Get(name)))
			}
			c.ReadOnly = on
		default:
			problems = append(problems, fmt.Errorf("unknown parameter %q", name))
		}
	}

	return errors.Join(problems...)
}
