// Package peer is how two nodes that are alive talk to each other: a question and its answer, or a
// word that wants none.
//
// It promises little. What is said may be lost, and may be heard twice; whoever asks gives up after
// a while, and asks anew if the answer still matters. So nothing may depend on a word but how long
// something takes.
//
// [Post] carries words by way of the store, which every node reaches. Hints make it quick; without
// them whoever waits for an answer looks once a second, and everybody else hears with the renewal
// of its lease that something is there.
package peer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/store"
)

// Line is a node's way to others.
type Line interface {
	// Call asks a node and waits for its answer, which may never come: ctx should end.
	Call(ctx context.Context, to model.NodeID, question []byte) (answer []byte, err error)
	// Tell says something that wants no answer. It does not wait.
	Tell(to model.NodeID, word []byte)
}

// Handler hears what others say. No method may block.
type Handler interface {
	// Asked hears a question. It is answered once, now or later, or never.
	Asked(from model.NodeID, question []byte, answer func(answer []byte))
	// Told hears a word.
	Told(from model.NodeID, word []byte)
}

const (
	mostWaiting = 4096             // words that wait to be sent; more are lost
	page        = 256              // letters that are taken at once
	pageBytes   = 16 << 20         // and their size
	timeout     = 5 * time.Second  // of a call to the store
	lookEvery   = time.Second      // while something is expected
	expectFor   = 10 * time.Second // after the last word
)

// Kinds of letters, as their first byte. An answer has the id of its question beside it.
const (
	question = 'q'
	word     = 'w'
	answer   = 'a'
)

// Post is a Line by way of the store.
type Post struct {
	self    model.NodeID
	mail    store.Peers
	hints   notify.Hub
	log     *slog.Logger
	handler Handler

	out     chan struct{} // capacity 1: something is to be sent
	lookout *notify.Lookout

	mu       sync.Mutex
	sending  []store.PeerMail
	calls    map[model.RunID]chan []byte
	expected time.Time // until when something may come
}

var _ Line = (*Post)(nil)

// New makes the line of a node; Run has it work.
func New(self model.NodeID, mail store.Peers, hints notify.Hub, log *slog.Logger, h Handler) *Post {
	return &Post{
		self: self, mail: mail, hints: hints, log: log, handler: h, out: make(chan struct{}, 1), lookout: notify.NewLookout(),
		calls: map[model.RunID]chan []byte{},
	}
}

// Call asks a node.
func (p *Post) Call(ctx context.Context, to model.NodeID, body []byte) ([]byte, error) {
	id := newID()
	answered := make(chan []byte, 1)
	p.mu.Lock()
	p.calls[id] = answered
	p.mu.Unlock()

	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.calls, id)
	}()

	p.send(store.PeerMail{To: to, ID: id}, question, body)
	select {
	case a := <-answered:
		return a, nil
	case <-ctx.Done():
		return nil, fault.New(fault.KindOf(ctx.Err()), "node %s does not answer: %w", to, context.Cause(ctx))
	}
}

// Tell says something.
func (p *Post) Tell(to model.NodeID, body []byte) {
	p.send(store.PeerMail{To: to, ID: newID()}, word, body)
}

func (p *Post) send(m store.PeerMail, kind byte, body []byte) {
	m.From, m.Body = p.self, append([]byte{kind}, body...)
	p.mu.Lock()
	if len(p.sending) < mostWaiting {
		p.sending = append(p.sending, m)
	}
	p.expected = time.Now().Add(expectFor)
	p.mu.Unlock()
	select {
	case p.out <- struct{}{}:
	default:
	}
	p.lookout.Expect()
}

// Nudge tells that something may have come.
func (p *Post) Nudge() { p.lookout.Nudge() }

// Run carries words until ctx ends.
func (p *Post) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-p.out:
				p.deliver(ctx)
			}
		}
	})
	p.lookout.Run(ctx, lookEvery, p.expects, p.receiveAll)
}

// expects reports whether something may come.
func (p *Post) expects() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls) > 0 || time.Now().Before(p.expected)
}

// deliver sends what waits to be sent. What the store does not take is lost, like any other word.
func (p *Post) deliver(ctx context.Context) {
	p.mu.Lock()
	mail := p.sending
	p.sending = nil
	p.mu.Unlock()
	if len(mail) == 0 {
		return
	}

	brief, cancel := context.WithTimeout(ctx, timeout)
	err := p.mail.PutPeerMail(brief, mail)
	cancel()

	if err != nil {
		p.log.Debug("words to other nodes are lost", "count", len(mail), "error", err)
		return
	}

	told := map[model.NodeID]bool{}
	for i := range mail {
		if to := mail[i].To; !told[to] {
			told[to] = true
			p.hints.Publish(notify.Hint{Kind: notify.Peer, Node: to})
		}
	}
}

// receiveAll passes on all that has come.
func (p *Post) receiveAll(ctx context.Context) {
	for p.receive(ctx) {
	}
}

// receive passes on a page of what has come. It reports whether there may be more.
func (p *Post) receive(ctx context.Context) (more bool) {
	brief, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	mail, err := p.mail.TakePeerMail(brief, p.self, page, pageBytes)
	if err != nil {
		if ctx.Err() == nil {
			p.log.Debug("cannot look for words of other nodes", "error", err)
		}
		return false
	}
	size := 0
	for i := range mail {
		size += len(mail[i].Body)
		p.hear(&mail[i])
	}
	return (len(mail) == page || size > pageBytes/2) && ctx.Err() == nil
}

func (p *Post) hear(m *store.PeerMail) {
	if len(m.Body) == 0 {
		return
	}
	body := m.Body[1:]

	switch m.Body[0] {
	case question:
		from, id := m.From, m.ID
		p.handler.Asked(from, body, func(a []byte) { p.send(store.PeerMail{To: from, ID: newID(), Re: id}, answer, a) })
	case word:
		p.handler.Told(m.From, body)
	case inquiry:
		p.inquired(m)
	case answer:
		p.mu.Lock()
		answered := p.calls[m.Re]
		p.mu.Unlock()
		if answered != nil {
			select {
			case answered <- body:
			default: // it was answered before
			}
		}
	}
}

func newID() model.RunID { return model.RunID(uuid.Must(uuid.NewV7())) }
