// Package txtest tests the promises of transactional activities and transactional starts, on every
// store of the engine and every kind of user's database. In the tests, calls to the user's database
// fail, answers are lost, and connections break, before and after each call. Processes die at any
// point, and processes that the engine believes dead continue later.
package txtest
