// Package policy decides with Cedar policies what callers may do.
//
// A policy sees the principal (a Caller with its name, tenant and roles), the action (a member of a
// group such as Action::"read"), and the resource (a kind of thing in the tenant of the caller, or
// the Server). It sees no request and no clock, so a decision depends only on the caller and the
// action. The type Policies therefore computes the decisions of a caller once and remembers them.
//
// Policies are checked against the schema when they are read. If the evaluation of a policy fails,
// Policies refuses the caller, regardless of the other policies.
package policy
