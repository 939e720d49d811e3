// Package crew lets workers of one node run the code of workflows and entities that another node
// owns. This is why processes with different code can share a store.
//
// The node of the workers is the host. It sees in the leases which code an owner lacks, and lets
// workers that have this code join the owner ([HostSide]). The owner treats such a worker like a
// worker of its own process: it hands over runs and calls, and it alone commits the results
// ([OwnerSide]). The worker itself talks only to its own node: [Hands] translates between the
// numbers of hand-overs that the owner uses and the numbers that the worker sees.
//
// The two nodes exchange numbered frames as questions and answers of package peer: over the direct
// connection, or through the store while there is none. A side sends a frame again until the other
// side answers it, and the other side takes each frame once.
//
// A worker outlives the owner that it works for. When the owner is lost, the worker continues the
// bodies of steps and calls that it runs. The host tells the next owner of the shard which runs and
// entities its workers hold, before that owner hands them to other workers. So no worker repeats a
// body that another worker still runs.
package crew
