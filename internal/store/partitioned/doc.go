// Package partitioned makes one store of several stores, which are called parts: a home and
// members. Each shard group lives in one part. The default group always lives in the home.
//
// The home alone has what belongs to the whole cluster: the counter of epochs, the leases of the
// nodes, settings, the audit log, reports, mail between nodes, and the names of remote workers. A
// member has the rows of its shards, and a registration and fences of every node.
//
// # One writer per shard
//
// A batch writes to one part only. With n parts, lane i of a node writes to part i modulo n, and
// Commit refuses a batch with rows of another part before it writes anything. So the commit of a
// batch is one transaction of one database.
//
// All epochs come from the counter of the home. A node registers in the home first and then, with
// the same epoch, in every member. Only the home judges leases. These rules keep two nodes from
// owning a shard of a member at the same time:
//
//   - A node owns a shard of a member if the member says so. As in any store, the member changes
//     the owner only if the previous owner is no longer registered in the member. Fences of the
//     member refuse commits of a node that is not registered there.
//   - A node may leave a member by itself (Unregister). Apart from that, a node is removed from a
//     member only after it is gone from the home: only FenceNode and Acquire remove other nodes,
//     and both look at the home first. A node that is gone from the home never comes back with the
//     same epoch. So a node that holds its lease keeps its shards in every member.
//   - FenceNode fences a node in the home first and then in the members. If the caller dies in
//     between, or a member cannot be reached, the node is still registered in that member and
//     owns its shards there. Acquire in the member finds a node that the home no longer has. It
//     fences that node in the member, and only then takes its shards. Acquire reads the nodes of
//     the member before the nodes of the home. A node is registered in the home before it is
//     registered in the member, so a node that is missing in the second read has left the home.
//   - A registration in a member may arrive late, after the node was fenced and other nodes have
//     taken its shards. Such a registration gives the node fences, but the node never had a shard
//     of this member. A node takes shards there only after a registration has succeeded, and a
//     process never has two registrations of a node in a member under way. If the connection of a
//     registration is cut, its transaction may still commit. But the transaction has written the
//     row of the node, so the next registration of the node waits until that transaction has ended.
//     So once a node has taken a shard, no registration of the node can still arrive. The next
//     Acquire removes a node that was registered late. cut_test.go has the tests.
//
// Unregister removes a node from the members first and then from the home. If the process dies in
// between, the lease of the node expires, and FenceNode finishes the work.
//
// # Messages between parts
//
// The batch of the sender writes its messages into the part of the sender, wherever the receiver
// lives. The receiver reads the messages from all parts, and skips the messages that the cursors of
// its own part have passed. The batch with the effects of a message also advances the cursor. The
// positions of a channel have no gaps, so each message takes effect exactly once.
//
// The part of the sender has a copy of the receiver's cursor, and the copy may be behind. Before
// messages are deleted, the store raises the copy to a value that the part of the receiver has
// committed. Sweep deletes messages up to the copy. An owner that acquires the sender's shard
// continues above the copy and above the last message, so it needs no other part to find the next
// position.
//
// # If a part cannot be reached
//
// Calls for the shards of that part fail with an error that names the database and its groups.
// Calls for shards of other parts succeed. Lists and counts over all shards fail, because their
// result would be incomplete.
//
// After a read of a member has failed, a probe finds out whether the member is away. While it is,
// reads of the member fail at once, and Members returns the owners that the store has seen last.
// After a pause, which grows from 2 s to 30 s, one read tries again. A renewal that fails also
// starts a probe, and the probe starts the pause again. So in a process that renews a lease, the
// renewals try again, and not the reads. A call of any kind that succeeds, such as the next
// renewal, proves that the member is back. Calls that write always try: they do not wait for a
// pause.
//
// Renew and Acquire wait only a short time for members. If a member does not answer in that time, a
// renewal returns the owners that the store has seen last. If the answer of a member to Acquire is
// lost, the acquired shards appear in the next view. Sweeps leave out the part that cannot be
// reached, and its rows wait for a later sweep.
//
// # What is not atomic
//
// No transaction spans two parts. Search looks at one part after the other, twice, so that it sees
// a value that moves from one part to another in the meantime. If a batch names remembered answers
// of another part (Batch.Forgets), the process keeps their keys in memory, and the next Sweep
// removes the answers. If the process ends before that, a later sweep removes the answers by their
// age.
package partitioned
