package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
)

// forceDelete saves the rows of an execution or an entity in a new file, deletes them, and returns
// the name of the file. If no path is given, it chooses a name in the current directory.
func forceDelete(ctx context.Context, b api.Backend, t api.Target, path string) (file string, err error) {
	f, err := createExport(t, path)
	if err != nil {
		return "", fault.New(fault.Invalid, "save the rows: %w", err)
	}
	_, err = b.Delete(ctx, api.DeleteRequest{Target: t, Force: true, Export: newRowFile(f)})
	err = errors.Join(err, f.Close())
	// Remove the file: nothing was deleted, and the next attempt saves the rows again.
	if fault.Is(err, fault.Conflict) {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), err
}

// exportNames is the number of file names to try. Another export may have started in the same
// second.
const exportNames = 100

// createExport creates the file for the saved rows. It never overwrites a file.
func createExport(t api.Target, path string) (f *os.File, err error) {
	if path != "" {
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	base := exportName(t, time.Now())
	for i := range exportNames {
		name := base + ".jsonl"
		if i > 0 {
			name = fmt.Sprintf("%s-%d.jsonl", base, i+1)
		}
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return f, err
}

// exportName returns the name of the file without its extension. Types and keys may contain any
// bytes and be long, so the name shortens them. The first line of the file contains them in full.
func exportName(t api.Target, now time.Time) string {
	const most = 80
	plain := func(s string) string {
		s = strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
				return r
			default:
				return '_'
			}
		}, s)
		return s[:min(len(s), most)]
	}

	kind := t.Address.Type
	if t.Address.IsEntity() {
		kind = entityWord(kind)
	}
	return fmt.Sprintf("perdure-%s-%s-%s", plain(kind), plain(t.Address.Key), now.UTC().Format("20060102T150405Z"))
}

// rowFile is a file of saved rows. The service flushes it before it deletes the rows.
type rowFile struct {
	*bufio.Writer
	file *os.File
}

func newRowFile(f *os.File) *rowFile { return &rowFile{bufio.NewWriterSize(f, 64<<10), f} }

// Flush writes all saved rows to disk. The file has no sync after each row, because a long history
// has a hundred thousand rows and the command has a time limit.
func (r *rowFile) Flush() error { return errors.Join(r.Writer.Flush(), r.file.Sync()) }
