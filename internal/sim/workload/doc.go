// Package workload makes everything that happens to a cluster from outside: the requests of users
// and operators, the faults, and the help that every execution gets after the faults have ended.
//
// A user makes one request after the other, through any live process. An action is a request
// together with everything that the user needs to make the request. The request itself is an
// oracle.Op, which the checks keep.
package workload
