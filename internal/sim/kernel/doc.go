// Package kernel is the virtual machine of a simulation: its time, its scheduler, its random
// numbers and its trace.
//
// A Kernel runs events in the order of their times, in one goroutine. Events of the same time run
// in the order in which they were scheduled. An event may belong to a Process. The event waits
// while the process is paused, and the kernel drops it after the death of the process. Production
// code that waits runs as a thread of a process, which is a coroutine that continues in an event.
//
// All random numbers come from the seed. So the same seed gives the same trace, byte for byte. The
// trace is a hash, and also a readable text if the caller asks for it. Fail ends a simulation with
// a Violation.
//
// The package knows nothing about stores, nodes or workflows.
package kernel
