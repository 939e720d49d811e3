// Package sorter restores the order of numbered messages that arrive out of order or more than
// once.
//
// Calls of one sender arrive at an entity in order and once, if the sender is a workflow, an
// operation, or a program that waits for each answer. Messages of other senders may arrive out of
// order or twice. Such senders are, for example, devices that try again, several consumers of one
// queue, and web hooks. Such a sender numbers its messages from 1, separately for each receiver.
// The type [Numbers] does that. The receiver keeps a [Sorter].
//
// The receiver gets every message of a sender once, in the order of the numbers. A message whose
// predecessors have not arrived waits for them. The window of the sorter is how long a message may
// wait. After that time the sorter delivers the message without its predecessors, and drops
// predecessors that arrive later. A sender that starts again with 1 uses a greater epoch. When the
// first message of the greater epoch arrives, the sorter delivers the waiting messages of the
// earlier epoch, and drops later messages of the earlier epoch.
//
// Keep a Sorter in the state of an entity, so that the commit of an operation also stores the
// changes that the operation makes to the sorter. A sorter has no clock and no timer. The caller
// passes the time, and calls [Sorter.Flush] at the time that [Sorter.Due] returns, for example in
// an operation that SendLater calls. Without that call, messages behind a gap wait until the next
// message of any sender arrives.
//
// A sorter has limits for the number of senders, of waiting messages and of their bytes. If a
// message would exceed a limit, the sorter refuses the message with an error, and the sender can
// try again later. A Sorter is not safe for concurrent use.
package sorter
