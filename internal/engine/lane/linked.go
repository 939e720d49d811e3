package lane

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Another node may send a request twice: over a connection to this node and, after that connection
// was lost, through the store. The first copy may still wait in front of the lane when the second
// has taken effect. A copy that arrives over a connection normally has a request id that was never
// used before, so the lane does not look for a remembered answer. That would be wrong here. So the
// second copy names the connection, and the lane looks up the requests of that connection from then
// on.

const (
	// maxLostLinks bounds the connections that a lane knows to be lost. It forgets them when there
	// are more.
	maxLostLinks = 4096
	// linkGrace is how much longer requests may arrive over a connection that the other node has
	// lost: until this node notices it, and well beyond.
	linkGrace = time.Minute
)

// lostLinks knows the connections that were lost with requests on them. The zero value is empty.
type lostLinks struct {
	known map[model.RunID]struct{}
	// forgot is when the lane has forgotten some of them, plus the grace: a request that arrived
	// before may have come over one of these.
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

// takeLink takes the connection out of a message, because nothing else needs it.
func takeLink(m *model.Message) model.RunID {
	link := m.Linked
	m.Linked = model.RunID{}
	return link
}
