// Package queue decides on one node which worker executes which task next, and when a task has
// waited, run or been silent for too long. It is a state machine without I/O: no clock, no
// goroutine, no randomness. It is not safe for concurrent use.
//
// The durable state is elsewhere: tasks are steps of runs, core decides their histories, and lane
// commits them. The board exists only in memory. It has the tasks of the runs that the node owns.
// After a restart the engine rebuilds it by calling Add and Hold for each task. The board proposes
// (Match, Reserve, TakeDue), the lane decides and commits, and the engine reports the outcome to
// the board (Hold, Unreserve, Remove, Add). A proposal takes the slot and the permits immediately,
// so that they are not given away twice while its commit is in flight.
//
// Tests check the following rules by comparison with a naive model:
//
//	Q1  A worker gets visible tasks of the tenants, queues and kinds that it offers, and
//	    never more than it has slots.
//	Q2  Among the tasks that a worker could take, it gets one of the highest priority.
//	    Within a priority, tenants share by their weights. Within a tenant, the fair keys
//	    of its queues share by their weights. Within a key the order is (Visible, run,
//	    step).
//	Q3  Among the workers that could take a task, the worker with the most free slots gets
//	    it. If several have equally many, the worker that was served least recently gets it.
//	Q4  A task may be held back by its gate group (the tasks with the same limits and
//	    breaker), by a pause or by the lack of a worker. It never holds back another task that
//	    could start.
//	Q5  The board reports a deadline once, after it has passed. A proposed task has no
//	    deadline until the lane has decided about the proposal.
//
// A class is a set of workers with the same offer. Each class has its own fairness: tasks that only
// workers of other classes execute do not count. A class has a virtual clock. Each key has a time
// at which its next task is due by that clock. Each served task advances this time by 1/weight. A
// key that had no waiting task starts at the clock as if it had just been served. So it gets no
// credit for its absence, and does not go before waiting keys.
//
// Costs: a call is O(log n) in the number of tasks, times the number of classes that cover the
// task. There is one class per different offer, not per worker. No call scans tasks or lines, with
// one exception: when a class is created or removed, the board visits the lines that the class
// covers. Idle workers cost nothing.
package queue
