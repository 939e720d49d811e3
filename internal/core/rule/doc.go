// Package rule tells which limits and which circuit breaker a task must pass. Rules are values that
// can be stored and edited at run time. A Set of rules is checked as a whole and never changes. To
// edit rules, the caller builds another Set, and gets either that Set or a list of everything that
// is wrong.
//
// A rule selects tasks by tenant, queue and kind. For each of the three it has an exact name, a
// prefix ("mail.*"), or nothing, which selects all. It also says what the tasks share: one resource
// for all of them, or one per queue, kind, tenant, or key. The key is a value of the input
// ("input.customer.id"). A rule with the scope PerName selects no tasks: it applies to tasks that
// name the rule themselves, as "name" or "name/key".
//
// All rules that select a task apply, not the most specific one. A limit is a promise about a
// resource ("the mail server gets 10 at a time"). A rule about fewer tasks does not break that
// promise: "2 per customer" applies in addition to "10 in all". If only the most specific rule
// applied, a new rule for one customer would silently exempt that customer's tasks from the limit
// for all. To make an exception, write selectors that do not select the exception. A task that
// needs several limits takes them in canonical order (see Resource.Compare), all or none. Rules
// refer only to tasks and not to each other, so they have no cycles. Two rules that select the same
// tasks for the same scope but differ in their numbers contradict each other and are refused.
//
// A task has at most one breaker: the breaker that it names. If it names none, it has the breaker
// of its kind, if a rule defines one. If several rules define that breaker, the most specific one
// gives its numbers.
//
// Names of queues, kinds and keys belong to a tenant. So a rule for several tenants has separate
// resources for each tenant. Tasks of different tenants use one resource only if the rule is
// shared.
package rule
