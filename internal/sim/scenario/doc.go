// Package scenario decides what a simulation contains. It derives all of this from the seed, before
// the first event of the simulation: its features, the plan of its faults, its programs and tasks,
// its entities and its settings.
//
// Programs are data. A machine interprets a program. What the machine does depends only on the
// program and the history. Workers run machines, and the checks of package oracle run the same
// machines again. So workers and checks agree on what a program has to do next.
//
// Words of this package:
//
//   - A program is a list of blocks. A block makes asks: requests such as a step, a timer, a child
//     or a lock.
//   - Accounts are entities with a state, and desks are services. A deed is one call of an account
//     or a desk. Each deed has its own id.
//   - An errand is a task that a program or a user will schedule.
//   - A hardship is a fault that lasts, or that comes from outside the cluster.
//   - A lot is a set of seeds that may have a feature. The number of a seed decides whether it is
//     in the lot, for example every eleventh seed.
//
// The package also counts what happens, because a run of many seeds must see every operation and
// every fault at least once (Stats).
package scenario
