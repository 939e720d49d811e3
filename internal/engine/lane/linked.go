package lane

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Another node may send a request twice: over a connection to this node and, after that connection
// was lost, through the store. The first copy may still wait in the inbox of the lane when the
// second has taken effect. A request that arrives over a connection normally has an id that was
// never used before, so the lane does not look for a remembered answer. For the first copy this
// would be wrong. So the second copy names the lost connection. From then on the lane looks up the
// ids of all requests of that connection.

const (
	// maxLostLinks bounds the connections that a lane knows to be lost. If there are more, the lane
	// forgets all of them.
	maxLostLinks = 4096
	// linkGrace is how much longer requests may arrive over a connection that the other node has
	// lost. It is much longer than this node needs to notice the loss.
	linkGrace = time.Minute
)

// lostLinks knows the connections that were lost with requests on them. The zero value is empty.
type lostLinks struct {
	known map[model.RunID]struct{}
	// forgot is the time at which the lane last forgot connections, plus linkGrace. A request that
	// arrived before this time may have come over a forgotten connection.
	forgot model.Time
}

// add notes that a connection was lost.
func (ls *lostLinks) add(now model.Time, link model.RunID) {
	if len(ls.known) >= maxLostLinks {
		ls.known, ls.forgot = nil, max(ls.forgot, now.Add(linkGrace))
	}
	if ls.known == nil {
		ls.known = map[model.RunID]struct{}{}
	}
	ls.known[link] = struct{}{}
}

// has reports whether a connection was lost.
func (ls *lostLinks) has(link model.RunID) bool {
	_, lost := ls.known[link]
	return lost
}

// LinksForgotten returns a time. A request that arrived over a connection before that time needs to
// be looked up: the lane may have forgotten that the connection was lost.
func (l *Lane) LinksForgotten() model.Time { return l.lost.forgot }

// takeLink removes the name of the lost connection from a message and returns it. Nothing else
// needs it.
func takeLink(m *model.Message) model.RunID {
	link := m.Linked
	m.Linked = model.RunID{}
	return link
}
