package lane

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// waiter is somebody who wants to hear how an execution ends: a caller of this process, or another node.
type waiter struct {
	token any
	node  model.NodeID
	run   model.RunID // a certain run; zero for the end of the chain
	reply string      // not for the end: for the answer to the request of this id
	drawn bool        // nobody else knows that id
	early bool        // its own start or update is not committed: what ends or is answered now is not what it waits for
	begun bool        // its own start is
	until model.Time  // when another node is forgotten; zero for a caller of this process
}

const (
	awaitFor  = 10 * time.Minute // how long another node is told; it looks every second anyway
	fewestAsk = 1024             // addresses that somebody waits for, before nodes are looked for that are to be forgotten
)

// watchFor is how long a listener of another node is told of changes; it says again that it listens before that.
const watchFor = 2 * time.Minute

// watcher is somebody who wants to hear that something of an address has been committed: a caller of this process, who hears it once, or another node.
type watcher struct {
	token any
	node  model.NodeID
	until model.Time
}
