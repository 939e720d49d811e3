// Package tenanttest checks that a caller in one tenant of a backend cannot read or change anything
// of another tenant. It uses only api.Backend, so it runs against the service in process and
// against a server over a connection.
//
// Verbs has one call for every method of api.Client. The call is made in one tenant with the ids of
// another tenant. A test of this package compares the table Verbs with the interface, so a new
// method needs a new verb.
package tenanttest
