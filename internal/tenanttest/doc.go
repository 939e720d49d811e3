// Package tenanttest checks that tenants of one backend do not reach each other. It uses only
// api.Backend, so it runs against the service in process and against a server over a connection.
//
// Verbs has one call for every method of api.Client, made in one tenant with the ids of another
// tenant. A test of this package compares the table with the interface, so a new method needs a new
// verb.
package tenanttest
