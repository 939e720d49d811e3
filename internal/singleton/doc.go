// Package singleton runs code in at most one process of a cluster at a time.
//
// Every singleton has a register. It is the state of an entity of the built-in type [Type] whose
// key is the name of the singleton. The register says which candidate runs the code, under which
// epoch, and the last position that the code has saved. [Decide] is the whole logic of a register,
// and uses no clock.
//
// A [Candidate] competes for one register. It promises:
//
//   - A candidate that holds the register renews its lease four times per lease. A claim and a save
//     that are granted count as renewals too. The candidate counts the lease from the moment before
//     it sent the last command that was granted.
//   - If the lease is not renewed, the context of the code ends a fifth of the lease before the end
//     of the lease.
//   - Another candidate takes the register over only in three cases: if its own clock shows that
//     the register has not been renewed for a whole lease, if it can prove that the process of the
//     holder is gone, or after the holder has released the register. So two candidates need not
//     agree on the time, only on the length of a second.
//   - A position is stored only under the epoch of the holder. A candidate that was paused past its
//     lease cannot overwrite the position of its successor.
//
// Perdure does not control what code does after its context has ended. Code that must not overlap
// at all passes its epoch to the system that it writes to, as a fencing token.
package singleton
