// Package txtest tests the promises of transactional activities and transactional starts, on every
// store of the engine and every kind of user's database. The user's database fails, loses answers
// and loses its client before and after each call. Processes die at any point, and processes that
// the engine believes dead continue later.
package txtest
