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

// forceDelete removes an execution or an entity after its rows are safe in a new file, and names
// that file. Without a path the file gets a name of its own in the current directory.
func forceDelete(ctx context.Context, b api.Backend, t api.Target, path string) (file string, err error) {
	f, err := createExport(t, path)
	if err != nil {
		return "", fault.New(fault.Invalid, "export of the rows: %w", err)
	}
	_, err = b.Delete(ctx, api.DeleteRequest{Target: t, Force: true, Export: newRowFile(f)})
	err = errors.Join(err, f.Close())
	if fault.Is(err, fault.Conflict) { // nothing was removed, and the next attempt exports again
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), err
}

// exportNames is how many names are tried for an export, when others were begun in the same second.
const exportNames = 100

// createExport creates the file of an export. It never overwrites one.
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

// exportName is the name of an export without its ending. Types and keys may have any bytes, and
// any length that the store takes; the first line of the file has them in full.
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

// rowFile is a file of exported rows. The service flushes it before it removes the rows.
type rowFile struct {
	*bufio.Writer
	file *os.File
}

func newRowFile(f *os.File) *rowFile { return &rowFile{bufio.NewWriterSize(f, 64<<10), f} }

// Flush has everything that was written on disk. Rows are not synced one by one: a long history has
// a hundred thousand of them, and the command has a time limit.
func (r *rowFile) Flush() error { return errors.Join(r.Writer.Flush(), r.file.Sync()) }
