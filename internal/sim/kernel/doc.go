// Package kernel is the virtual machine of a simulation: its time, its scheduler, its random
// numbers and its trace.
//
// A Kernel runs events in the order of their times, in one goroutine. Events of the same time run
// in the order in which they were scheduled. An event may belong to a Process: while the process is
// paused the event waits, and after its death the event is dropped. Production code that waits runs
// as a thread of a process, which is a coroutine that continues in an event.
//
// All random numbers come from the seed. So the same seed gives the same trace, byte for byte. The
// trace is a hash, and a readable text on request. Fail ends a simulation with a Violation.
//
// The package knows nothing about stores, nodes or workflows.
package kernel
