// Package sorter restores the order of numbered messages that arrive out of order or more than
// once.
//
// Calls of one sender arrive at an entity in order and once, if the sender is a workflow, an
// operation, or a program that waits for each answer. Messages of other senders may arrive out of
// order or twice: devices that try again, several consumers of one queue, web hooks. Such a sender
// numbers its messages from 1, separately for each receiver ([Numbers] does it), and the receiver
// keeps a [Sorter].
//
// The receiver gets every message of a sender once, in the order of the numbers. A message whose
// predecessors have not arrived waits for them. When it has waited for the window of the sorter, it
// is delivered without them, and predecessors that arrive later are dropped. A sender that starts
// again with 1 uses a greater epoch. Then the waiting messages of the earlier epoch are delivered
// first, and messages of it that arrive later are dropped.
//
// A sorter is a value for the state of an entity, so it is stored in the commit of the operation
// that changes it. It has no clock and no timer. The caller passes the time, and calls
// [Sorter.Flush] at the time that [Sorter.Due] returns, for example by an operation that SendLater
// calls. Without that call, messages behind a gap wait until the next message of any sender
// arrives.
//
// A sorter is bounded in senders, in waiting messages and in their bytes. The sorter refuses a
// message that would exceed a bound with an error. Its sender can try again later. A Sorter is not
// safe for concurrent use.
package sorter
