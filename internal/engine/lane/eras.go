package lane

import (
	"encoding/base64"
	"hash/maphash"

	"github.com/perdure/perdure/internal/model"
)

// A client of a server draws the id of a request itself, because it sends the request again when
// its connection breaks. To find out whether it has served an id before, the lane would have to
// read the store for each request. So the lane divides its life into eras, and each id that a
// client draws contains the name of an era. The lane notes the ids that it has served in the last
// two eras. An id with the name of one of these eras was drawn after that era had begun. If the
// lane has not noted such an id, no owner has ever served a request with this id.
//
// This holds because only the lane serves requests to its shards. When the lane acquires shards,
// another owner may have served requests to them. So the acquisition ends all earlier eras, and the
// lane looks up ids of these eras in the store.

// eras notes which of the ids that clients draw the lane has served in the last two eras. At first,
// and after end, it has no era and no ids.
type eras struct {
	name, before         string // of the current era and of the one before it; empty for none
	served, servedBefore map[uint64]struct{}
	draw                 func() model.RunID
	most                 int // ids that the lane serves in an era
}

// current returns the name of the current era. The name cannot be guessed: a client could otherwise
// draw ids for an era that has not begun.
func (x *eras) current() string {
	if x.name == "" {
		id := x.draw()
		x.name = base64.RawURLEncoding.EncodeToString(id[len(id)-8:])
	}
	return x.name
}

// end ends all eras.
func (x *eras) end() { *x = eras{draw: x.draw, most: x.most} }

// serve notes that the lane serves a request.
func (x *eras) serve(id string) {
	if !model.IsDrawnID(id) {
		return
	}
	if len(x.served) >= x.most {
		x.name, x.before, x.served, x.servedBefore = "", x.name, nil, x.served
	}
	if x.served == nil {
		x.served = map[uint64]struct{}{}
	}
	x.served[digest(id)] = struct{}{}
}

// isNew reports whether a request certainly has not been served.
func (x *eras) isNew(id string) bool {
	era := model.EraOf(id)
	if era == "" || era != x.name && era != x.before {
		return false
	}
	d := digest(id)
	_, now := x.served[d]
	_, then := x.servedBefore[d]
	return !now && !then
}

var digestSeed = maphash.MakeSeed()

// digest shortens an id. If two ids have the same digest, the lane looks up the second one in the
// store without need, which does no harm.
func digest(id string) uint64 { return maphash.String(digestSeed, id) }

// Era returns the name of the current era. Clients of a server put it into the ids that they draw.
func (l *Lane) Era() string { return l.eras.current() }
