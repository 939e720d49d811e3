// Package lane implements a lane: one committer together with the shards that it serves. The lane
// is the heart of the engine, written as a state machine without I/O.
//
// The caller (a goroutine in production, an event heap in the simulator) hands in one input after
// the other, each with the current time. Then it calls Flush and takes the Output: a batch to
// commit, reads to make, answers to give, and calls to workers. Later it hands in the results of
// the commits and reads as further inputs. Nothing here blocks, reads a clock or starts a
// goroutine.
//
// Rules, which tests and the simulator check:
//
//	L1  At most one batch is in flight; the next one fills at the same time. Batch n+1 is sealed
//	    only after n has been committed.
//	L2  Nothing leaves the lane before the commit of everything that it depends on. Answers,
//	    deliveries to workers, messages to other lanes and results wait until their batch is
//	    durable. Inside the lane, a message takes effect in the batch that sends it (see pass.go).
//	L3  The lane keeps inputs until their commit. When the store refuses a batch, the lane drops
//	    the state of every address in this batch and in the open batch, and reads it again. Then
//	    it applies the kept inputs again in their order, in halves, until the refused input is
//	    alone. The address of that input is quarantined; all others commit (see careful.go).
//	L4  If the lane does not know whether a commit took effect, it moves its fence to a fresh
//	    epoch before it repeats the commit or reads what was stored.
//	L5  A lane that has been fenced, or that has given up on the store while its node stops,
//	    does nothing further.
//	L6  One address never starves the others: it takes at most a fixed number of inputs per
//	    batch. Its other inputs wait in its own bounded backlog.
//	L7  The bytes in memory are bounded. A full lane says so, and takes no input and fires no
//	    timer until it has room.
//
// # The way of an input
//
// Each kind of input is a struct that implements the interface input. The lane takes the input
// (ready.go). While something has to be read or committed first, the input waits in the backlog of
// its address. Then the lane applies it (apply.go): core decides, and record.go and write.go turn
// the decision into rows of the open batch and into effects. If the decision sends messages to
// other addresses of the lane, pass.go delivers them in the same batch. seal.go sends the batch.
// commit.go takes the result of the commit, and effects.go runs the effects: only now do callers
// and workers learn the decision. careful.go handles a batch that the store refuses.
//
// # Words
//
// The open batch is the batch that the lane fills. When the lane seals the batch, the batch gets
// its number and goes to the store. Until the result is there, the batch is in flight. A commit has
// landed if it took effect, even if its answer was lost. An input is poison if the store always
// refuses its rows. A channel carries the messages from one shard to another. Its cursor is the
// position of the last message that took effect. A chain is a run together with the later runs that
// continue it.
//
// # The files
//
// From the top down: round.go (Flush and Wake) drives everything. Below it are the features, as
// methods of Lane: turns, tasks (claim.go, post.go, handover.go), entities, queries, mail, timers,
// retention, shards. Below those is the way of an input. At the bottom are small types that do not
// use Lane, and that Lane is composed of: entry and its parts, building, window, waiters, watchers,
// mailroom, workers, room, budget, questions, resting, recovery.
package lane
