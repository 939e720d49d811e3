// Package lane is the heart of the engine as a state machine without I/O: one committer and the
// shards that it serves.
//
// The caller (a goroutine in production, an event heap in the simulator) hands in one input after
// the other, each with the current time, then calls Flush, and then takes the Output: a batch to
// commit, reads to make, answers to give, calls to workers. It reports the results of commits and
// reads back as further inputs. Nothing here blocks, reads a clock or starts a goroutine.
//
// Rules, which tests and the simulator check:
//
//	L1  At most one batch is in flight; the next one fills in the meantime. Batch n+1 is sealed only
//	    after n has been committed.
//	L2  The lane tells nothing before the commit of everything it depends on: answers, deliveries to
//	    workers, messages to other shards and results leave only when their batch is durable.
//	L3  The lane keeps inputs until their commit. When a batch is refused, it drops the state of
//	    every address in it and in the batch that fills, reads that again, and applies the kept
//	    inputs again in their order, in halves, until the input that is refused stands alone: its
//	    address is quarantined, all others commit (see careful.go).
//	L4  The lane never repeats or reads back an unknown commit before its fence has been moved to a
//	    fresh epoch.
//	L5  A lane that has been fenced, or that has given up on the store while its node stops, does
//	    nothing more.
//	L6  One address never starves the others: it takes at most a fixed number of inputs per batch.
//	    The rest waits in a bounded backlog of its own.
//	L7  Bytes held are bounded: a full lane says so, and takes no input and fires no timer until it
//	    has room.
//
// # The way of an input
//
// Each kind of input is a struct that implements the interface input. A lane takes it (ready.go),
// lets it wait in the backlog of its address while something has to be read or committed first, and
// then applies it (apply.go): core decides, record.go and write.go turn the decision into rows of
// the open batch and into effects. seal.go sends the batch. commit.go takes its result, and
// effects.go runs the effects: only now callers and workers hear of it. careful.go is the way of a
// batch that the store refuses.
//
// # The files
//
// From the top down: round.go (Flush and Wake) drives everything. Below it are the features, as
// methods of Lane: turns, tasks (claim.go, post.go, handover.go), entities, queries, mail, timers,
// retention, shards. Below those is the way of an input. At the bottom are small types that know
// nothing of Lane, and that Lane is made of: entry and its parts, building, window, waiters,
// watchers, mailroom, workers, room, budget, questions, resting, recovery.
package lane
