package peer

import (
	"context"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/engine/series"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/store"
)

// inquiry is the kind of a message that asks why runs do not move. A node of an older version
// ignores it.
const inquiry = 'i'

// QueueCount counts the tasks of a queue that belong to runs of one node.
type QueueCount struct {
	Tenant  string `cbor:"1,keyasint"`
	Queue   string `cbor:"2,keyasint"`
	Waiting int    `cbor:"3,keyasint,omitempty"`
	Delayed int    `cbor:"4,keyasint,omitempty"`
	Claimed int    `cbor:"5,keyasint,omitempty"`
	// Oldest is the time at which the oldest waiting task started to wait; zero if no task waits.
	Oldest model.Time `cbor:"6,keyasint,omitempty"`
	Paused bool       `cbor:"7,keyasint,omitempty"`
	// Abandoned are the activities of waiting tasks that no worker of the node executes.
	Abandoned []string `cbor:"8,keyasint,omitempty"`
}

// Informant is a Handler that answers inquiries.
type Informant interface {
	// HandleInquiry receives the runs or entities that another process asks about. It answers once,
	// now or later, or never. The answer has reasons only for runs and entities about which the
	// node knows more than the store.
	HandleInquiry(all []model.Address, answer func(map[model.Address][]model.Reason))
	// Queues returns the numbers of tasks of the node's runs, by queue. ok is false if the node is
	// not sure that it owns these runs. Queues does not block.
	Queues() (counts []QueueCount, ok bool)
	// Series returns what the node has counted for a tenant. ok is false if the node does not
	// count, or if the question makes no sense. Series does not block.
	Series(q series.Question) (counts series.Counts, ok bool)
}

// Bounds of an inquiry and its answer.
const (
	maxAsked      = 1000    // addresses of an inquiry
	maxAnswer     = 4 << 20 // bytes of texts in an answer; further reasons are left out
	maxQueues     = 10_000  // queues of an answer; a node with more does not answer
	firstAskPause = 2 * time.Millisecond
	maxAskPause   = 50 * time.Millisecond
)

// asked is the body of an inquiry.
type asked struct {
	Addresses []model.Address `cbor:"1,keyasint,omitempty"`
	// Queues asks for the numbers of tasks of the node by queue, instead of the reasons.
	Queues bool `cbor:"2,keyasint,omitempty"`
	// Series asks for the numbers of a tenant, instead of the reasons.
	Series string `cbor:"3,keyasint,omitempty"`
	// Levels also asks for the states of the tenant's queues and limits, one point for each period
	// of this length. A node of an older version answers without them.
	Levels time.Duration `cbor:"4,keyasint,omitempty"`
}

// informed is the body of an answer.
type informed struct {
	Known  []known      `cbor:"1,keyasint,omitempty"`
	Queues []QueueCount `cbor:"2,keyasint,omitempty"`
	// Series is nil in the answer of a node that does not know the question.
	Series *series.Counts `cbor:"3,keyasint,omitempty"`
}

// known is what an owner knows about one of the addresses, by its index in the inquiry.
type known struct {
	At      int            `cbor:"1,keyasint"`
	Reasons []model.Reason `cbor:"2,keyasint"`
}

// Asker asks nodes through the store. It need not be a node itself.
type Asker struct {
	Mail  store.Peers
	Hints notify.Hub
}

// Ask asks a node why runs of its shards do not move. The asker need not be a node: it draws a name
// for the answer, and looks for the answer under that name again and again. ctx should have a
// deadline, because the node may never answer. Ask sends at most maxAsked addresses.
func (k Asker) Ask(ctx context.Context, to model.NodeID, all []model.Address) (map[model.Address][]model.Reason, error) {
	all = all[:min(len(all), maxAsked)]
	told, err := k.inquire(ctx, to, asked{Addresses: all})
	if err != nil {
		return nil, err
	}
	found := make(map[model.Address][]model.Reason, len(told.Known))
	for _, k := range told.Known {
		if k.At >= 0 && k.At < len(all) && len(k.Reasons) > 0 {
			found[all[k.At]] = k.Reasons
		}
	}
	return found, nil
}

// AskQueues asks a node for the tasks of its runs, by queue, as Ask does.
func (k Asker) AskQueues(ctx context.Context, to model.NodeID) ([]QueueCount, error) {
	told, err := k.inquire(ctx, to, asked{Queues: true})
	return told.Queues, err
}

// AskSeries asks a node for the numbers of a tenant.
func (k Asker) AskSeries(ctx context.Context, to model.NodeID, question series.Question) (series.Counts, error) {
	q := asked{Series: question.Tenant}
	if question.Levels {
		q.Levels = question.Step
	}
	told, err := k.inquire(ctx, to, q)
	if err != nil {
		return series.Counts{}, err
	}
	if told.Series == nil {
		return series.Counts{}, fault.New(fault.Unavailable, "node %s keeps no counts of the last hour", to)
	}
	return *told.Series, nil
}

// inquire sends an inquiry and polls for its answer.
func (k Asker) inquire(ctx context.Context, to model.NodeID, q asked) (told informed, err error) {
	body, err := cbor.Marshal(q)
	if err != nil {
		return told, fault.New(fault.Internal, "ask node %s: %w", to, err)
	}
	self, id := model.NodeID(uuid.Must(uuid.NewV7())), newID()
	mail := store.PeerMail{To: to, From: self, ID: id, Body: append([]byte{inquiry}, body...)}
	if err := k.Mail.PutPeerMail(ctx, []store.PeerMail{mail}); err != nil {
		return told, err
	}
	k.Hints.Publish(notify.Hint{Kind: notify.Peer, Node: to})

	for pause := firstAskPause; ; pause = min(2*pause, maxAskPause) {
		select {
		case <-ctx.Done():
			return told, fault.New(fault.KindOf(ctx.Err()), "node %s does not answer: %w", to, context.Cause(ctx))
		case <-time.After(pause):
		}

		replies, err := k.Mail.TakePeerMail(ctx, self, page, pageBytes)
		if err != nil {
			return told, err
		}

		for i := range replies {
			if l := &replies[i]; l.Re != id || len(l.Body) == 0 || l.Body[0] != answer {
				continue
			} else if err := decMode.Unmarshal(l.Body[1:], &told); err != nil {
				return told, fault.New(fault.Corrupt, "read the answer of node %s: %w", to, err)
			}
			return told, nil
		}
	}
}

// handleInquiry passes an inquiry to the handler, if the handler is an Informant.
func (p *Post) handleInquiry(m *store.PeerMail) {
	h, ok := p.handler.(Informant)
	if !ok {
		return
	}
	var q asked
	if err := decMode.Unmarshal(m.Body[1:], &q); err != nil || len(q.Addresses) > maxAsked {
		p.log.Warn("cannot read a question of another process, which may run another version", "node", m.From.String(), "error", err)
		return
	}

	from, id := m.From, m.ID
	reply := func(told informed) {
		body, err := cbor.Marshal(told)
		if err != nil {
			p.log.Warn("cannot answer a question of another process", "node", from.String(), "error", err)
			return
		}
		p.send(store.PeerMail{To: from, ID: newID(), Re: id}, answer, body)
	}

	if q.Series != "" {
		told := informed{}
		if counts, ok := h.Series(series.Question{Tenant: q.Series, Levels: q.Levels != 0, Step: q.Levels}); ok {
			told.Series = &counts
		}
		reply(told)
	} else if !q.Queues {
		h.HandleInquiry(q.Addresses, func(found map[model.Address][]model.Reason) { reply(answerTo(q.Addresses, found)) })
	} else if counts, ok := h.Queues(); ok && len(counts) <= maxQueues {
		reply(informed{Queues: counts})
	}
}

// answerTo builds the answer about as many of the addresses as there is room for.
func answerTo(all []model.Address, found map[model.Address][]model.Reason) (told informed) {
	size := 0
	for i, a := range all {
		reasons, ok := found[a]
		for j := range reasons {
			size += len(reasons[j].Name) + len(reasons[j].Detail)
		}
		if size > maxAnswer {
			break
		}
		if ok {
			told.Known = append(told.Known, known{At: i, Reasons: reasons})
		}
	}
	return told
}
