// Package storeclock keeps a node's idea of the store's time.
//
// The node reads the store's clock with each renewal of its lease, and measures the time in between
// with its own clock, which never steps. Clock compares the two clocks. It corrects small
// differences slowly, which is called slewing. It follows a jump of the store's clock only after
// the jump has lasted for a while.
//
// Clock has no goroutine and does no I/O. The caller passes the node's own time with every call.
// The node's own time counts from an arbitrary moment and includes the time that the machine was
// suspended.
//
// Below, "time" is the store's time as Clock computes it. Clock promises the following; tests refer
// to the numbers:
//
//	T1  Time never goes back.
//	T2  Between two moments that are d apart, time advances by at least 9/10 of d, and by
//	    at most 201/200 of d unless a lasting jump was accepted in between. So a sleep is
//	    never cut short by more than 1/200, and no timer stands still.
//	T3  Suppose that the store's clock runs as fast as the node's own clock. Once an initial
//	    error has been corrected, time differs from the store's clock by at most the
//	    shortest round trip so far.
//	T4  Clock follows a jump of the store's clock by more than Jump only after the jump has
//	    lasted for Persist. It accepts such a forward jump as a step. After a backward
//	    jump the caller must start over (WentBack), because time may only go back where
//	    nothing depends on it.
//	T5  At some times the node may delete no data, however old it is (MayDelete):
//	    while the store's clock is in doubt, for Persist after the first reading and after
//	    a doubt has ended, and for Hold after a jump was accepted.
package storeclock
