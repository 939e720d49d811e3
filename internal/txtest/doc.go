// Package txtest proves what transactional activities and transactional starts promise: on every
// store of the engine and every kind of user's database, with the user's database failing, losing
// answers and losing its client before and after each call, with processes that die at any point,
// and with processes that are thought dead and wake up late.
package txtest
