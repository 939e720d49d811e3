// Package policy decides with Cedar policies what callers may do.
//
// A policy sees the principal (a Caller with its name, tenant and roles), the action (a member of a
// group such as Action::"read"), and the resource (a kind of thing in the tenant of the caller, or
// the Server). It sees no request and no clock, so a decision depends on the caller and the action
// alone, and Policies computes the decisions of a caller once.
//
// Policies are checked against the schema when they are read. If a policy fails while it is
// evaluated, the caller is refused, whatever the other policies say.
package policy
