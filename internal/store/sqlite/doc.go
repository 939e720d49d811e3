// Package sqlite stores everything in one SQLite file: the store of an embedded node, of
// development and of a production node that needs no other.
//
// What it promises:
//
//   - A committed batch survives the process and the power: write-ahead log, full sync, one
//     fdatasync per batch. After the first failed sync the store refuses every further write until
//     it is opened again, because what the kernel still holds in memory is not known to be on disk
//     any more.
//   - One process owns the file, by a lock on <path>.lock; the second one gets an error that names
//     the first. With Config.ReadOnly a process reads beside the owner.
//   - Readers never block the writer and the writer never blocks readers.
//   - A row that was changed by anything but this package (a flipped bit, an editor) is an error of
//     kind fault.Corrupt, not an event that never happened: bodies carry a checksum of their row.
//
// How it is built: one connection writes, under a token that callers queue for; a few connections
// read; one more moves the write-ahead log into the file in the background. All use the low-level
// API of ncruces/go-sqlite3 (SQLite translated to Go, no cgo) with prepared statements, since
// database/sql costs more than the insert.
//
// The store's clock is the clock of this machine.
package sqlite
