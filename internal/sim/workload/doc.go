// Package workload is what happens to a cluster from outside: the requests of users and operators,
// the faults, and the help that every execution gets after the faults have ended.
//
// A User makes one request after the other, through any live process. An action is a request with
// everything that it takes to make it; the request itself is an oracle.Op, which the checks keep.
package workload
