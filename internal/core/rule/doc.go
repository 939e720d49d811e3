// Package rule tells which limits and which circuit breaker a task has to pass. Rules are values
// that can be stored and edited at run time; a Set of them is checked as a whole, and never
// changes: who edits makes another one, or is told what is wrong with it and nothing has changed.
//
// A rule selects tasks by tenant, queue and kind, each exactly, by a beginning ("mail.*"), or not
// at all, and says what they share: one resource for all of them, or one per queue, kind, tenant,
// or key. The key is a value of the input ("input.customer.id"). A rule per name selects nothing:
// tasks name it themselves, as "name" or "name/key".
//
// All rules that select a task apply, not the most specific one. A limit is a promise about a
// resource ("the mail server gets 10 at a time"), and a rule about fewer tasks is not a reason to
// break it: "2 per customer" narrows "10 in all". With the most specific rule alone, adding a rule
// for one customer would let everybody else's limit be exceeded by that customer's tasks, and
// nobody would have said so. Whoever wants an exception excludes it by selectors. Several limits
// are taken in canonical order, all or none; since rules refer to nothing but tasks, there is no
// cycle among them. Two rules that select the same tasks for the same scope and differ in their
// numbers contradict each other and are refused.
//
// Of breakers a task has one: that of the name it gives, or else that of its kind if a rule says
// so; the most specific rule gives the numbers.
//
// Names of queues, kinds and keys belong to a tenant. A rule for several tenants therefore has
// resources of its own for each of them, unless it is shared: only then tasks of different tenants
// meet in one resource.
package rule
