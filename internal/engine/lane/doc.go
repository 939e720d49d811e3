// Package lane is the heart of the engine as a state machine without I/O: one committer and the shards it serves.
//
// The caller (a goroutine in production, an event heap in the simulator) hands in one input after the other, each with the
// current time, and then takes the Output: a batch to commit, reads to make, answers to give, calls to workers. It reports the
// results of commits and reads back as further inputs. Nothing here blocks, reads a clock or starts a goroutine.
//
// Rules, which tests and the simulator check:
//
//	L1  At most one batch is in flight; the next one fills meanwhile. Batch n+1 is sealed only after n has been committed.
//	L2  Nothing is told to anybody before the commit of everything it depends on: answers, deliveries to workers, messages to
//	    other shards and results leave only when their batch is durable.
//	L3  Inputs are kept until their commit. When a batch is refused, the state of every address in it and in the one that fills
//	    is dropped and read again, and the kept inputs are applied again in their order, in halves, until the one that
//	    is refused stands alone: its address is quarantined, all others commit (see careful.go).
//	L4  An unknown commit is never repeated and never read back before the lane's fence has been moved to a fresh epoch.
//	L5  A lane that has been fenced, or that has given up on the store while its node stops, does nothing more.
//	L6  One address never starves the others: it takes at most a fixed number of inputs per batch; the rest waits in its own
//	    bounded backlog.
//	L7  Bytes held are bounded: a full lane says so, and takes no input and fires no timer until it has room.
package lane
