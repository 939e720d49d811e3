package sqlite

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"
)

// cutDisk is a file system that records what a store writes and when it syncs. With the record, a
// test can compute what a disk may hold after the power was cut at any point.
//
// The disk is sure to keep only what was synced. If a sector was written several times since the
// last sync, the disk may have any of these contents or the synced one, independently of other
// sectors. A sector may also be torn, which means that it has parts of two contents. The size of a
// file and each name in the directory are equally uncertain until they are synced.
type cutDisk struct {
	vfs.VFSFilename
	name string

	mu     sync.Mutex
	record []diskOp
	inodes int
	names  map[string]int // names of the files that exist, with their inodes
	first  diskImage      // contents of the disk at the start
	begin  int            // the test cuts the power after this many operations or later
}

// diskImage is the contents of a directory.
type diskImage map[string][]byte

// diskOp is an entry of the record.
type diskOp struct {
	kind  diskOpKind
	inode int
	name  string
	off   int64 // offset of a write; the size after a truncate
	data  []byte
}

type diskOpKind uint8

const (
	opCreate diskOpKind = iota
	opRemove
	opWrite
	opTruncate
	opSync
	opSyncDir
	opAck // the store has acknowledged one more step
)

func (k diskOpKind) String() string {
	return [...]string{"create", "remove", "write", "truncate", "sync", "sync of the directory", "acknowledgement"}[k]
}

var cutDisks atomic.Int64

// newCutDisk creates a disk with synced files in a directory.
func newCutDisk(t testing.TB, dir string, files diskImage) *cutDisk {
	t.Helper()
	d := &cutDisk{VFSFilename: vfs.Find("").(vfs.VFSFilename), name: fmt.Sprint("perdure-cut-", cutDisks.Add(1)), names: map[string]int{}, first: files}
	files.write(t, dir)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		d.names[name] = d.inodes
		d.inodes++
	}
	vfs.Register(d.name, fileSystem{d, d.syncDir})
	t.Cleanup(func() { vfs.Unregister(d.name) })
	return d
}

// write puts the files into a directory.
func (i diskImage) write(t testing.TB, dir string) {
	t.Helper()
	for name, data := range i {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// do records an operation and performs it.
func (d *cutDisk) do(op diskOp, perform func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := perform(); err != nil {
		return err
	}
	op.data = slices.Clone(op.data)
	d.record = append(d.record, op)
	return nil
}

// ack records that a step was acknowledged.
func (d *cutDisk) ack() { _ = d.do(diskOp{kind: opAck}, func() error { return nil }) }

// syncDir records the sync of the directory.
func (d *cutDisk) syncDir(string) error {
	return d.do(diskOp{kind: opSyncDir}, func() error { return nil })
}

// OpenFilename opens a file. A name that the disk does not know is a new file.
func (d *cutDisk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := d.VFSFilename.OpenFilename(name, flags)
	if err != nil || name.String() == "" {
		return f, flags, err
	}
	base := filepath.Base(name.String())
	d.mu.Lock()
	defer d.mu.Unlock()
	inode, known := d.names[base]
	if !known {
		inode = d.inodes
		d.inodes++
		d.names[base] = inode
		d.record = append(d.record, diskOp{kind: opCreate, inode: inode, name: base})
	}
	return &cutFile{File: f, disk: d, inode: inode}, flags, nil
}

// Delete removes a name.
func (d *cutDisk) Delete(name string, sync bool) error {
	base := filepath.Base(name)
	err := d.do(diskOp{kind: opRemove, name: base}, func() error {
		if err := d.VFSFilename.Delete(name, false); err != nil {
			return err
		}
		delete(d.names, base)
		return nil
	})
	if err == nil && sync {
		err = d.syncDir("")
	}
	return err
}

// cutFile is an open file of a cutDisk.
type cutFile struct {
	vfs.File
	disk  *cutDisk
	inode int
}

func (f *cutFile) SharedMemory() vfs.SharedMemory {
	return f.File.(vfs.FileSharedMemory).SharedMemory()
}

func (f *cutFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.disk.do(diskOp{kind: opWrite, inode: f.inode, off: off, data: p}, func() error {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	return n, err
}

func (f *cutFile) Truncate(size int64) error {
	return f.disk.do(diskOp{kind: opTruncate, inode: f.inode, off: size}, func() error { return f.File.Truncate(size) })
}

// Sync makes written data durable on the recorded disk. The real disk is not synced.
func (f *cutFile) Sync(vfs.SyncFlag) error {
	return f.disk.do(diskOp{kind: opSync, inode: f.inode}, func() error { return nil })
}

// sector is the unit that a disk writes completely or, when the power is cut at that moment, in
// part.
const sector = 512

// cut returns one possible state of the disk if the power is cut after the first n operations. It
// also returns how many steps were acknowledged by then.
func (d *cutDisk) cut(rng *rand.Rand, n int) (left diskImage, acked int) {
	inodes := make([]cutInode, d.inodes)
	var dir cutDirectory
	for i, name := range slices.Sorted(maps.Keys(d.first)) {
		inodes[i].synced = slices.Clone(d.first[name])
		dir.ops = append(dir.ops, diskOp{kind: opCreate, inode: i, name: name})
	}
	dir.sync()

	for _, op := range d.record[:n] {
		switch op.kind {
		case opCreate, opRemove:
			dir.ops = append(dir.ops, op)
		case opWrite, opTruncate:
			inodes[op.inode].pending = append(inodes[op.inode].pending, op)
		case opSync:
			inodes[op.inode].sync()
		case opSyncDir:
			dir.sync()
		case opAck:
			acked++
		}
	}

	left = diskImage{}
	names := dir.survivors(rng)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		left[name] = inodes[names[name]].survivor(rng)
	}
	return left, acked
}

// luck returns the probability that all unsynced changes of a sector, a size or a name survive. It
// differs from file to file, so that one file may keep everything and another only a part.
func luck(rng *rand.Rand) float64 { return []float64{0, 0.05, 0.5, 0.9, 0.99, 1}[rng.IntN(6)] }

// keptRows returns how many of n successive changes survive: all of them with the probability p,
// otherwise a random number.
func keptRows(rng *rand.Rand, p float64, n int) int {
	if rng.Float64() < p {
		return n
	}
	return rng.IntN(n + 1)
}

// cutDirectory is the names in a directory.
type cutDirectory struct {
	synced map[string]int
	ops    []diskOp // operations since the last sync
}

func (d *cutDirectory) apply(names map[string]int, op diskOp) {
	if op.kind == opRemove {
		delete(names, op.name)
	} else {
		names[op.name] = op.inode
	}
}

func (d *cutDirectory) sync() {
	if d.synced == nil {
		d.synced = map[string]int{}
	}
	for _, op := range d.ops {
		d.apply(d.synced, op)
	}
	d.ops = nil
}

func (d *cutDirectory) survivors(rng *rand.Rand) map[string]int {
	p := luck(rng)
	total, kept := map[string]int{}, map[string]int{}
	for _, op := range d.ops {
		total[op.name]++
	}
	for _, name := range slices.Sorted(maps.Keys(total)) {
		kept[name] = keptRows(rng, p, total[name])
	}
	names := maps.Clone(d.synced)
	if names == nil {
		names = map[string]int{}
	}

	for _, op := range d.ops {
		if kept[op.name] > 0 {
			kept[op.name]--
			d.apply(names, op)
		}
	}

	return names
}

// cutInode is the contents of a file.
type cutInode struct {
	synced  []byte
	pending []diskOp // operations since the last sync
}

// sync applies what is pending.
func (f *cutInode) sync() {
	for _, op := range f.pending {
		end := op.off + int64(len(op.data))
		if grow := end - int64(len(f.synced)); grow > 0 {
			f.synced = append(f.synced, make([]byte, grow)...)
		}
		if op.kind == opTruncate {
			f.synced = f.synced[:end]
			continue
		}
		copy(f.synced[op.off:], op.data)
	}
	f.pending = nil
}

// survivor returns one possible state of the file after a power cut.
func (f *cutInode) survivor(rng *rand.Rand) []byte {
	if len(f.pending) == 0 {
		return slices.Clone(f.synced)
	}
	p := luck(rng)

	// Sizes that the file had since its last sync, and how often each sector changed.
	size, most := int64(len(f.synced)), int64(len(f.synced))
	sizes := []int64{size}
	for _, op := range f.pending {
		end := op.off + int64(len(op.data))
		if size = max(size, end); op.kind == opTruncate {
			size = op.off
		}
		most = max(most, size)
		sizes = append(sizes, size)
	}
	changes := make([]int, most/sector+1)
	each := func(op diskOp, change func(s int, from, to int64)) {
		from, to := op.off, op.off+int64(len(op.data))
		if op.kind == opTruncate {
			to = most
		}
		for s := from / sector; s*sector < to; s++ {
			change(int(s), max(from, s*sector), min(to, (s+1)*sector))
		}
	}
	for _, op := range f.pending {
		each(op, func(s int, _, _ int64) { changes[s]++ })
	}
	for s, n := range changes {
		if n > 0 {
			changes[s] = keptRows(rng, p, n)
		}
	}

	out := make([]byte, most)
	copy(out, f.synced)
	for _, op := range f.pending {
		each(op, func(s int, from, to int64) {
			switch left := changes[s]; {
			case left < 0:
				return
			case left == 0 && rng.IntN(4) == 0:
				// the power went off while this sector was written
				to = from + rng.Int64N(to-from)
			case left == 0:
				to = from
			}
			changes[s]--
			if op.kind == opTruncate {
				clear(out[from:to])
			} else {
				copy(out[from:to], op.data[from-op.off:])
			}
		})
	}
	return out[:sizes[keptRows(rng, p, len(sizes)-1)]]
}
