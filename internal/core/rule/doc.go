// Package rule tells which limits and which circuit breaker a task must pass. Rules are values that
// can be stored and edited at run time. A Set of them is checked as a whole and never changes. An
// edit builds another Set, which either succeeds or returns everything that is wrong.
//
// A rule selects tasks by tenant, queue and kind: each by exact name, by a prefix ("mail.*"), or
// not at all. It also says what the tasks share: one resource for all of them, or one per queue,
// kind, tenant, or key. The key is a value of the input ("input.customer.id"). A rule per name
// selects nothing: tasks name it themselves, as "name" or "name/key".
//
// All rules that select a task apply, not the most specific one. A limit is a promise about a
// resource ("the mail server gets 10 at a time"), and a rule about fewer tasks is no reason to
// break it: "2 per customer" narrows "10 in all". If only the most specific rule applied, a new
// rule for one customer would exempt that customer's tasks from the limit for all, silently. To
// make an exception, exclude it by selectors. Several limits are taken in canonical order, all or
// none. Rules refer to nothing but tasks, so there is no cycle among them. Two rules that select
// the same tasks for the same scope but differ in their numbers contradict each other and are
// refused.
//
// A task has one breaker: the one that it names, or else that of its kind if a rule says so. The
// most specific rule gives the numbers.
//
// Names of queues, kinds and keys belong to a tenant. A rule for several tenants therefore has
// separate resources for each of them, unless it is shared: only then tasks of different tenants
// use one resource.
package rule
