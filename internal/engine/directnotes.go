package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/store"
)

// noteKind is what a note between nodes contains, in its first byte.
type noteKind byte

// The kinds of notes. A note may be lost. So its content is also in the store, or nodes can do
// without it.
const (
	noteMessages noteKind = 'm' // committed messages to shards of the other node
	notePeer     noteKind = 'p' // a message of package peer
	noteLook     noteKind = 'l' // the store has an answer that the other node waits for
)

// notedMessage is a committed message to a shard.
type notedMessage struct {
	To   model.ShardID `cbor:"1,keyasint"`
	From model.ShardID `cbor:"2,keyasint"`
	Seq  int64         `cbor:"3,keyasint"`
	Body []byte        `cbor:"4,keyasint"`
}

// notedPeer is a message of package peer.
type notedPeer struct {
	ID   model.RunID `cbor:"1,keyasint"`
	Re   model.RunID `cbor:"2,keyasint,omitzero"`
	Body []byte      `cbor:"3,keyasint"`
}

// toldShards has the shards to whose owners this node has sent messages as notes. These notes may
// still be lost with a connection.
type toldShards struct {
	mu sync.Mutex
	by map[model.NodeID]map[model.ShardID]bool
}

// add records that this node has sent a note to the owner of a shard.
func (t *toldShards) add(node model.NodeID, shard model.ShardID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[model.NodeID]map[model.ShardID]bool{}
	}
	if t.by[node] == nil {
		t.by[node] = map[model.ShardID]bool{}
	}
	t.by[node][shard] = true
}

// take returns the shards of a node, and forgets them.
func (t *toldShards) take(node model.NodeID) map[model.ShardID]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	shards := t.by[node]
	delete(t.by, node)
	return shards
}

// note sends a note to another node. It returns false if there is no connection, or no room.
func (inc *incarnation) note(to model.NodeID, kind noteKind, v any) bool {
	if inc.links == nil || to.IsZero() || !inc.links.Connected(to) {
		return false
	}
	body := []byte{byte(kind)}
	if v != nil {
		body = append(body, mustEncode(v)...)
	}
	return inc.links.Note(to, body)
}

// route passes on messages for shards of other lanes or nodes. The messages are also in the store.
// The receiving shard records in the store which message it has read last, so a message that is
// lost here arrives later.
func (inc *incarnation) route(rows []store.MessageRow) {
	var abroad map[model.NodeID][]notedMessage
	for _, row := range rows {
		if s := inc.lane(row.To); s != nil {
			s.inbox.result(func(l *lane.Lane, _ model.Time) { l.Messages([]store.MessageRow{row}) })
			continue
		}
		to, _ := inc.ownerOf(row.To)
		if to.IsZero() || inc.links == nil {
			inc.eng.cfg.Hints.Publish(notify.Hint{Kind: notify.Mail, Shard: row.To})
			continue
		}
		if abroad == nil {
			abroad = map[model.NodeID][]notedMessage{}
		}
		body := model.AppendMessage(nil, &row.Message)
		abroad[to] = append(abroad[to], notedMessage{To: row.To, From: row.From, Seq: row.Seq, Body: body})
	}

	for to, rows := range abroad {
		for i := range rows {
			inc.toldShards.add(to, rows[i].To)
		}
		if !inc.note(to, noteMessages, rows) {
			inc.hintMail(inc.toldShards.take(to))
		}
	}
}

// hintMail tells the owners of shards that messages wait for them in the store.
func (inc *incarnation) hintMail(shards map[model.ShardID]bool) {
	for s := range shards {
		inc.eng.cfg.Hints.Publish(notify.Hint{Kind: notify.Mail, Shard: s})
	}
}

// sendPeerMail sends a message of package peer over a connection. It returns false if the message
// has to go through the store.
func (inc *incarnation) sendPeerMail(m *store.PeerMail) bool {
	return inc.note(m.To, notePeer, notedPeer{ID: m.ID, Re: m.Re, Body: m.Body})
}

// HandleNote implements peerlink.Handler.
func (h *linkHandler) HandleNote(ctx context.Context, from model.NodeID, body []byte, taken func()) {
	if err := h.takeNote(ctx, from, body, taken); err != nil {
		// A newer build may send a note that this build does not know. As with all notes, the
		// content is also in the store, or nodes can do without it.
		h.inc.eng.cfg.Log.Warn("cannot read a note of another node", "node", from.String(), "error", err)
	}
}

// takeNote handles a note. It calls taken when no part of the note waits for room any longer.
func (h *linkHandler) takeNote(ctx context.Context, from model.NodeID, body []byte, taken func()) error {
	parts := &parts{left: 1, done: taken}
	defer parts.end()
	if len(body) == 0 {
		return fault.New(fault.Invalid, "the note is empty")
	}

	switch kind := noteKind(body[0]); kind {
	case noteMessages:
		var rows []notedMessage
		if err := linkDecoding.Unmarshal(body[1:], &rows); err != nil {
			return err
		}
		return h.takeMessages(ctx, rows, parts)
	case notePeer:
		var m notedPeer
		if err := linkDecoding.Unmarshal(body[1:], &m); err != nil {
			return err
		}
		h.inc.peers.Hear(&store.PeerMail{To: h.inc.self.ID, From: from, ID: m.ID, Re: m.Re, Body: m.Body})
	case noteLook:
		h.inc.eng.clerk.lookout.LookNow()
	default:
		return fault.New(fault.Invalid, "a note of kind %q", kind)
	}
	return nil
}

// takeMessages passes messages to their lanes. A lane ignores a message that it knows, and reads
// the store if a message is missing.
func (h *linkHandler) takeMessages(ctx context.Context, rows []notedMessage, parts *parts) error {
	byLane := map[*laneShell][]store.MessageRow{}
	size := map[*laneShell]int{}
	for i := range rows {
		if int(rows[i].To) >= len(h.inc.owner) {
			return fault.New(fault.Invalid, "a message for shard %d", rows[i].To)
		}
		s := h.inc.lane(rows[i].To)
		if s == nil {
			continue // the new owner reads the message
		}
		m, err := model.DecodeMessage(rows[i].Body)
		if err != nil {
			h.inc.mailWaits() // the lane finds the message in the store, and sets it aside there
			return err
		}
		byLane[s] = append(byLane[s], store.MessageRow{To: rows[i].To, From: rows[i].From, Seq: rows[i].Seq, Message: m})
		size[s] += len(rows[i].Body)
	}

	for s, rows := range byLane {
		parts.begin()
		o := op{bytes: size[s], do: func(l *lane.Lane, _ model.Time) { l.Messages(rows) }}
		s.line.put(ctx, s, o, func(err error) {
			defer parts.end()
			if errors.Is(err, errLineFull) {
				h.inc.mailWaits() // the lane reads them when it has room
			}
			// A lane that has ended needs no messages.
		})
	}
	return nil
}

// parts counts the parts of a note that wait for room, and calls done after the last one.
type parts struct {
	mu   sync.Mutex
	left int
	done func()
}

func (p *parts) begin() {
	p.mu.Lock()
	p.left++
	p.mu.Unlock()
}

func (p *parts) end() {
	p.mu.Lock()
	p.left--
	last := p.left == 0
	p.mu.Unlock()
	if last {
		p.done()
	}
}

// HandleLoss implements peerlink.Handler. Notes that were on their way are lost, so this node sends
// the other node hints to look at the store, and looks there for the answers that it waits for. The
// other node may also be dead.
func (h *linkHandler) HandleLoss(node model.NodeID) {
	if h.inc.peers != nil { // nil unless other processes share the store
		h.inc.peers.HandleLoss()
	}
	h.inc.suspect(node)
	h.inc.hintMail(h.inc.toldShards.take(node))
	h.inc.eng.feed.Unsubscribe(node, 0)
	if h.inc.crewHost != nil {
		h.inc.crewHandler().LoseNode(node)
	}
}
