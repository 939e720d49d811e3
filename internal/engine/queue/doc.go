// Package queue decides on one node which worker executes which task next, and when a task has
// waited, run or been silent for too long. It is a state machine without I/O: no clock, no
// goroutine, no randomness. It is not safe for concurrent use.
//
// What is durable is elsewhere: tasks are steps of runs, and their histories are decided by core
// and committed by lane. The board is what the owner of those runs remembers of them, and is
// rebuilt by calling Add and Held for each. It proposes (Match, Reserve, Due), the lane decides and
// commits, and the board is told what came of it (Held, Unreserve, Remove, Add). A proposal takes
// the slot and the permits at once, so that nothing is given away twice while its commit is under
// way.
//
// Rules, which the tests compare with a naive model:
//
//	Q1  A worker gets tasks of tenants, queues and kinds that it offers, when they are visible, and never more than it has slots.
//	Q2  Of the tasks that a worker could take, one of the highest priority is taken. Within a priority tenants share by their weights, within a tenant
//	    the fair keys of its queues share by theirs, and within a key the order is (Visible, run, step).
//	Q3  Of the workers that could take a task, the one with the most free slots gets it, and of those the one that was served least recently.
//	Q4  What a gate group, a pause or the lack of a worker keeps back keeps back nothing else.
//	Q5  A deadline is reported once it has passed, once. A task that was proposed has none until the proposal is decided.
//
// Fairness is kept by each set of workers with the same offer, a class: shares of work that only
// other workers can do count for nothing here. A class has a virtual clock. Each key has a time at
// which its next task is due by that clock; it is advanced by 1/weight for each task served.
// Whoever was away begins at the clock as if it had just been served: it is owed nothing, and does
// not go before those that wait.
//
// Costs: a call is O(log n) in the number of tasks, times the number of classes that cover the
// task, which is the number of different offers and not of workers. Nothing is looked through,
// except when a class comes or goes: then the lines that it covers are. Workers that wait cost
// nothing.
package queue
