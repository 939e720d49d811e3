package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
)

// bulk writes the histories of all runs that a query selects, one file per run.
//
// A file gets its final name only when it is complete. The user can therefore repeat an export that
// was interrupted. The repetition skips closed runs whose file exists, because their histories no
// longer change. Files of open runs have different names, and every export writes them again.
type bulk struct {
	dir string

	Selected int64 `json:"selected"`
	Written  int   `json:"written"`
	Skipped  int   `json:"skipped"` // runs whose file existed
	Gone     int   `json:"gone"`    // runs that the store removed during the export
	Failed   int   `json:"failed"`
}

// exportAll writes all histories that a request selects, one after the other.
func (o *options) exportAll(ctx context.Context, r api.ListRequest, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.New(fault.Invalid, "export: %w", err)
	}
	x, shown := &bulk{dir: dir}, o.newProgress()
	var first error

	err := o.with(ctx, true, func(b api.Backend) (err error) {
		if x.Selected, err = b.Count(ctx, r); err != nil {
			return err
		}
		return each(ctx, b, r, func(d *api.Description) error {
			if err := x.one(ctx, b, d); err != nil {
				if ctx.Err() != nil || errors.As(err, new(*fs.PathError)) {
					return err // the next export would fail in the same way
				}
				shown.clear()
				fmt.Fprintf(o.Err, "%s/%s: %s\n", d.Start.Address.Type, d.Start.Address.Key, err)
				if first == nil {
					first = err
				}
				if x.Failed++; x.Failed == maxFailedExports {
					return fault.New(fault.KindOf(err), "%d exports failed; the command stopped", x.Failed)
				}
			}
			shown.tell(x.done(), x.Selected, x.text())
			return nil
		})
	})

	shown.clear()
	fmt.Fprintf(o.Err, "%s.\n", x.text())
	if o.structured() {
		err = errors.Join(err, o.json(x))
	}
	if err == nil && x.Failed > 0 {
		err = fault.New(fault.KindOf(first), "%d of %d exports failed", x.Failed, x.Selected)
	}

	return err
}

// each calls f with every execution that a request selects, newest first, page by page. It stops at
// the first error.
func each(ctx context.Context, b api.Backend, r api.ListRequest, f func(*api.Description) error) error {
	r.Limit = 500
	for {
		page, err := b.List(ctx, r)
		if err != nil {
			return err
		}
		for i := range page.Executions {
			if err := f(&page.Executions[i]); err != nil {
				return err
			}
		}
		if r.Cursor = page.Cursor; r.Cursor == "" {
			return nil
		}
	}
}

// maxFailedExports is the number of failures that ends an export.
const maxFailedExports = 100

// one writes the history of a run, unless its file exists.
func (x *bulk) one(ctx context.Context, b api.Backend, d *api.Description) error {
	name := filepath.Join(x.dir, url.PathEscape(d.Start.Address.Type)+"-"+d.Start.Run.String())
	done, open := name+".jsonl", name+".open.jsonl"
	if _, err := os.Stat(done); err == nil {
		x.Skipped++
		return nil
	}

	target := open
	if d.Outcome.Status.Closed() {
		target = done
	}
	err := writeWhole(target, func(f *os.File) error {
		w := bufio.NewWriterSize(f, 1<<16)
		return errors.Join(history.Export(ctx, b, api.Target{Address: d.Start.Address, Run: d.Start.Run}, w), w.Flush())
	})
	switch {
	case fault.Is(err, fault.NotFound):
		x.Gone++
		return nil
	case err != nil:
		return err
	}
	x.Written++
	if target == done {
		if err := os.Remove(open); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeWhole writes a file under a temporary name. When the content is complete and on disk, it
// renames the file.
func writeWhole(path string, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".partial-*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the temporary file does no harm if it stays
	}
	return err
}

// done returns how many histories the export has finished with.
func (x *bulk) done() int64 { return int64(x.Written + x.Skipped + x.Gone + x.Failed) }

// text describes the progress of the export.
func (x *bulk) text() string {
	return fmt.Sprintf("%d of %d histories: %d written, %d exist, %d gone, %d failed",
		x.done(), x.Selected, x.Written, x.Skipped, x.Gone, x.Failed)
}
