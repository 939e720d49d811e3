// Package sqlite stores everything in one SQLite file. It is the store of an embedded node, of
// development, and of a production node that needs no other.
//
// Promises:
//
//   - A committed batch survives a crash of the process and a power failure: write-ahead log, full
//     sync, one fdatasync per batch. After the first failed sync the store refuses every further
//     write until it is opened again, because pages that the kernel still has in memory may no
//     longer reach the disk.
//   - One process owns the file, by a lock on <path>.lock. A second process gets an error that
//     names the first. With Config.ReadOnly a process can read at the same time as the owner.
//   - Readers never block the writer, and the writer never blocks readers.
//   - Bodies carry a checksum of their row. If anything but this package changes a row (a flipped
//     bit, an editor), reading it is an error of kind fault.Corrupt, never wrong data.
//
// How it is built: one connection writes, and callers queue for it. A few connections read. One
// more moves the write-ahead log into the file in the background. All use the low-level API of
// ncruces/go-sqlite3 (SQLite translated to Go, no cgo) with prepared statements, because
// database/sql costs more than the insert.
//
// The store's clock is the clock of this machine.
package sqlite
