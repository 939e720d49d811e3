// Package sqlite stores everything in one SQLite file. It is the store for embedded nodes, for
// development, and for production with a single node.
//
// Promises:
//
//   - A committed batch survives a crash of the process and a power failure. The store uses a
//     write-ahead log with one fdatasync per batch. After a failed sync, pages that the kernel
//     still has in memory may never reach the disk. So after the first failed sync the store
//     refuses every further write until it is opened again.
//   - One process owns the file while it holds a lock on <path>.lock. A second process gets an
//     error that names the owner. With Config.ReadOnly a process can read at the same time as the
//     owner.
//   - Readers never block the writer, and the writer never blocks readers.
//   - Each stored body has a checksum, which covers the body and the other columns of its row. If a
//     flipped bit or another program changes a row, a read returns an error of kind fault.Corrupt,
//     never wrong data.
//
// How it is built: one connection writes, and callers queue for it. A few connections read. One
// more connection moves the write-ahead log into the file in the background. All connections use
// the low-level API of ncruces/go-sqlite3 (SQLite translated to Go, no cgo) with prepared
// statements, because a call through database/sql takes more time than the insert itself.
//
// The store's clock is the clock of this machine.
package sqlite
