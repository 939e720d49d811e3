package payload

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const (
	blob     = "cluster/ab000000000000000000000000000001"
	neighbor = "cluster/ab000000000000000000000000000002" // in the same folder
)

// syncs is a fake of a file system that records which folders were synced.
type syncs struct {
	mu   sync.Mutex
	all  []string
	fail error
}

func (s *syncs) sync(folder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == nil {
		s.all = append(s.all, folder)
	}
	return s.fail
}

func (s *syncs) clear() { s.all, s.fail = nil, nil }

func (s *syncs) want(t *testing.T, folders ...string) {
	t.Helper()
	for _, f := range folders {
		if !slices.Contains(s.all, f) {
			t.Errorf("%s was not synced, only %s", f, strings.Join(s.all, ", "))
		}
	}
}

// Put returns nil only when the names of the folders of its blob are durable. A folder that is
// there already may have been made by a Put whose sync failed, or has not happened yet.
func TestPutSyncsFoldersThatItFinds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "blobs")
	folder := filepath.Join(path, "cluster", "ab")
	names := []string{filepath.Dir(folder), path, filepath.Dir(path)}

	var s syncs
	d := &dir{path: path, sync: s.sync}
	s.fail = errors.New("no space")
	if err := d.Put(t.Context(), blob, []byte("1")); !errors.Is(err, s.fail) {
		t.Fatalf("a Put whose sync fails returns %v", err)
	}

	s.clear()
	if err := d.Put(t.Context(), neighbor, []byte("2")); err != nil {
		t.Fatal(err)
	}
	s.want(t, append(names, folder)...)

	s.clear() // the names are durable now
	if err := d.Put(t.Context(), blob, []byte("1")); err != nil || !slices.Equal(s.all, []string{folder}) {
		t.Errorf("the next Put syncs %q: %v", s.all, err)
	}

	another := &dir{path: path, sync: s.sync} // another process does not know who made the folders
	if err := another.Put(t.Context(), blob, []byte("1")); err != nil {
		t.Fatal(err)
	}
	s.want(t, append(names, folder)...)
}

// Put may make several folders above the directory of the store. It syncs the names of all of them.
// Put ignores folders further up if another user owns them, because it cannot have made them.
func TestPutSyncsFoldersAboveItsDirectory(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	path := filepath.Join(base, "a", "b", "blobs")
	var s syncs
	d := &dir{path: path, sync: func(folder string) error {
		if !strings.HasPrefix(folder, base) {
			return fs.ErrPermission
		}
		return s.sync(folder)
	}}
	if err := d.Put(t.Context(), blob, []byte("1")); err != nil {
		t.Fatal(err)
	}
	s.want(t, base, filepath.Join(base, "a"), filepath.Join(base, "a", "b"), path, filepath.Join(path, "cluster"), filepath.Join(path, "cluster", "ab"))

	s.fail = syscall.EIO
	if err := (&dir{path: path, sync: s.sync}).Put(t.Context(), blob, []byte("1")); !errors.Is(err, syscall.EIO) {
		t.Errorf("a Put returns %v", err)
	}
	for _, refused := range []string{path, filepath.Dir(path)} { // Put could have made names there
		d := &dir{path: path, sync: func(folder string) error {
			if folder == refused {
				return fs.ErrPermission
			}
			return nil
		}}
		if err := d.Put(t.Context(), blob, []byte("1")); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a Put that cannot sync %s returns %v", refused, err)
		}
	}
}
