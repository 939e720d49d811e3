// Package crew lets workers of one node run the code of workflows and entities that another node
// owns. Processes with different code can share a store because of it.
//
// The node of the workers is the host. It sees in the leases which code an owner lacks, and joins
// the owner with the workers that have it ([HostSide]). The owner treats such a worker like one of
// its own process: it hands runs and calls over, and it alone commits the results ([OwnerSide]).
// The worker itself knows only its own node: [Hands] translates the numbers of hand-overs.
//
// The two nodes exchange numbered frames as questions and answers of package peer: over the direct
// connection, or through the store while there is none. A frame is sent again until it is answered,
// and is taken once.
//
// A worker outlives the owner that it works for. When the owner is lost, the worker continues the
// bodies that it runs. The host tells the next owner of the shard what its workers hold, before
// that owner hands it out. So no body is repeated while it still runs.
package crew
