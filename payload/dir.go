package payload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Dir returns a Store in a directory, with one file per blob. Processes that share executions must
// share the directory.
func Dir(path string) Store { return &dir{path: path, sync: syncFolder} }

type dir struct {
	path string
	sync func(folder string) error // makes the names in a folder durable
	// durable has the folders whose own names this process has made durable. A folder that is there
	// may still disappear in a crash: another Put, or another process, may have made it and not
	// synced it yet.
	durable sync.Map
}

// temporary is the prefix of the names of files that are being written.
const temporary = ".new-"

// file returns the path of a blob. It refuses keys that Offload did not make, because such a key
// could lead to a file outside the directory.
func (d *dir) file(key string) (string, error) {
	if !validKey(key) {
		return "", fmt.Errorf("%q is not the key of a blob: %w", key, ErrNotFound)
	}
	cluster, id, _ := strings.Cut(key, "/")
	return filepath.Join(d.path, cluster, id[:2], id), nil
}

func (d *dir) Put(ctx context.Context, key string, data []byte) error {
	path, err := d.file(key)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}

	folder := filepath.Dir(path)
	if err := d.makeFolder(folder); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, temporary)
	if err != nil {
		return err
	}

	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}

	return d.sync(folder)
}

// makeFolder makes the folders of a blob and syncs their names, so that they survive a crash. It
// syncs the names of all folders on the path, because it may have made each of them.
func (d *dir) makeFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	var synced []string
	root := filepath.Dir(filepath.Dir(folder)) // the directory of the store
	for f := folder; filepath.Dir(f) != f; f = filepath.Dir(f) {
		if _, ok := d.durable.Load(f); ok {
			break
		}
		if err := d.sync(filepath.Dir(f)); err != nil && (len(f) >= len(root) || !isForeign(err)) {
			return err
		}
		synced = append(synced, f)
	}
	for _, f := range synced {
		d.durable.Store(f, nil)
	}
	return nil
}

// isForeign reports whether this process may not sync a folder: another user owns it, or its file
// system is read-only. In that case this process has not made a folder there.
func isForeign(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EINVAL)
}

func (d *dir) Get(ctx context.Context, key string) ([]byte, error) {
	path, err := d.file(key)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	return data, err
}

func (d *dir) Delete(_ context.Context, key string) error {
	path, err := d.file(key)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d *dir) List(ctx context.Context, prefix string) iter.Seq2[Blob, error] {
	return func(yield func(Blob, error) bool) {
		err := filepath.WalkDir(d.path, func(path string, e fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // the folder was just removed, or there never was a blob
			case err != nil:
				return err
			case ctx.Err() != nil:
				return ctx.Err()
			case e.IsDir():
				return nil
			}

			key := filepath.Base(filepath.Dir(filepath.Dir(path))) + "/" + e.Name()
			if !validKey(key) || !strings.HasPrefix(key, prefix) {
				return nil
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}

			if err != nil {
				return err
			}
			if !yield(Blob{key, info.ModTime()}, nil) {
				return fs.SkipAll
			}

			return nil
		})
		if err != nil {
			yield(Blob{}, err)
		}
	}
}
