// Package feed keeps the recent changes of tenants for callers that watch them.
//
// A tenant has a buffer while a caller watches it, and for a while after that, so that a caller
// whose connection broke can continue. A watcher is only a position in the buffer, so it never
// blocks the engine. A watcher that falls behind the oldest change in the buffer gets a gap notice
// and continues with the next change. The same happens to a caller with a cursor that is too old,
// or that comes from another life of the process. All watchers get a gap notice when shards move
// from one node to another.
//
// Changes of one execution come in the order of their commits. The engine publishes a change after
// its commit. So a caller misses nothing if it does the following: after its first page, and after
// each gap notice, it reads a list (for example of executions), and then applies the changes that
// follow. It may see a change that the list already contains.
//
// The feed has the changes of the whole cluster. A hub subscribes at all other live nodes for the
// tenants that are watched here. The other node keeps the changes that it makes for these tenants
// in a bounded buffer, until this node asks for them. It numbers the portions that it sends, and
// says in the same stream which shards it owns. So the hub knows whose changes it lacks, and it
// leaves out late changes of a node that no longer owns the shard. The package does no I/O: the
// engine carries demands and portions between the nodes.
package feed
