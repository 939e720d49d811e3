// Package feed keeps the recent changes of tenants for callers that watch them.
//
// A tenant has a buffer while a caller watches it, and for a while after that, so that a caller
// whose connection broke can continue. A watcher is only a position in the buffer. So it never
// blocks the engine: a watcher that falls behind the oldest kept change gets a gap notice and
// continues from now, and so does a cursor that is too old or of another life of the process. All
// watchers get a gap notice when the node acquires shards, because their last owner may have
// changed something.
//
// Changes of one execution come in the order of their commits. A change is published after its
// commit, so a caller that reads a list after it got its first page, or a gap notice, and then
// applies the changes that follow, misses nothing. It may see a change that the list contains
// already.
//
// The feed has changes of this process only. Watchers learn whether other processes own shards.
package feed
