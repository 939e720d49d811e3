// Package peer lets two live nodes talk to each other: a question with an answer, or a note without
// one.
//
// It promises little. A message may be lost, and may arrive twice. A node that asks gives up after
// a while, and asks again if the answer still matters. Callers must be written so that a lost
// message costs only time.
//
// [Post] sends a message over a connection between the two nodes if there is one. Otherwise it
// sends the message through the store, which every node reaches. Hints make that fast. If a hint is
// lost, the other node still finds the message. A node that expects an answer through the store
// reads the store once a second. A node expects such an answer if it has sent a message through the
// store a moment ago, or if it waits for an answer and has lost a connection. Every other node
// finds the message when it renews its lease: the store then reports that messages wait.
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

// Line is a node's connection to other nodes.
type Line interface {
	// Call asks a node and waits for its answer, which may never come: ctx should have a deadline.
	Call(ctx context.Context, to model.NodeID, question []byte) (answer []byte, err error)
	// Tell sends a note without an answer. It does not wait.
	Tell(to model.NodeID, word []byte)
}

// Handler receives messages. No method may block.
type Handler interface {
	// HandleQuestion receives a question. It calls answer once, now or later, or never.
	HandleQuestion(from model.NodeID, question []byte, answer func(answer []byte))
	// HandleNote receives a note.
	HandleNote(from model.NodeID, word []byte)
}

const (
	mostWaiting = 4096             // messages that wait to be sent; further messages are lost
	mostBytes   = 64 << 20         // bytes of waiting messages; the last one may exceed the limit
	page        = 256              // messages of one read
	pageBytes   = 16 << 20         // size of the messages of one read
	timeout     = 5 * time.Second  // time limit of a call to the store
	lookEvery   = time.Second      // time between two reads of the store while an answer may arrive
	expectFor   = 10 * time.Second // how long after the last sent message an answer may arrive
)

// Kinds of messages, in their first byte. An answer also carries the id of its question.
const (
	question = 'q'
	word     = 'w'
	answer   = 'a'
)

// Post is a Line that sends messages over connections between nodes. It uses the store for
// nodes to which it has no connection.
type Post struct {
	self    model.NodeID
	mail    store.Peers
	hints   notify.Hub
	log     *slog.Logger
	handler Handler
	direct  func(*store.PeerMail) bool

	out     chan struct{} // capacity 1: there is something to send
	lookout *notify.Lookout

	mu       sync.Mutex
	sending  []store.PeerMail
	bytes    int // bytes of the messages in sending
	calls    map[model.RunID]chan []byte
	expected time.Time // until when an answer may arrive
}

var _ Line = (*Post)(nil)

// Config configures a Post. All fields except Direct are required.
type Config struct {
	Self    model.NodeID
	Mail    store.Peers
	Hints   notify.Hub
	Log     *slog.Logger
	Handler Handler
	// Direct sends a message over a connection to another node, which passes the message to the
	// method Hear of its Post. Direct returns false if the message has to go through the store.
	// Direct may be nil.
	Direct func(*store.PeerMail) bool
}

// New returns the line of a node; Run operates it.
func New(cfg Config) *Post {
	return &Post{
		self: cfg.Self, mail: cfg.Mail, hints: cfg.Hints, log: cfg.Log, handler: cfg.Handler, direct: cfg.Direct, out: make(chan struct{}, 1), lookout: notify.NewLookout(),
		calls: map[model.RunID]chan []byte{},
	}
}

// Call asks a node.
func (p *Post) Call(ctx context.Context, to model.NodeID, body []byte) ([]byte, error) {
	return p.call(ctx, to, question, body)
}

func (p *Post) call(ctx context.Context, to model.NodeID, kind byte, body []byte) ([]byte, error) {
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

	p.send(store.PeerMail{To: to, ID: id}, kind, body)
	select {
	case a := <-answered:
		return a, nil
	case <-ctx.Done():
		return nil, fault.New(fault.KindOf(ctx.Err()), "node %s does not answer: %w", to, context.Cause(ctx))
	}
}

// Tell sends a note.
func (p *Post) Tell(to model.NodeID, body []byte) {
	p.send(store.PeerMail{To: to, ID: newID()}, word, body)
}

func (p *Post) send(m store.PeerMail, kind byte, body []byte) {
	m.From, m.Body = p.self, append([]byte{kind}, body...)
	if p.direct != nil && p.direct(&m) {
		return
	}
	p.mu.Lock()
	if len(p.sending) < mostWaiting && p.bytes < mostBytes {
		p.sending = append(p.sending, m)
		p.bytes += len(m.Body)
	}
	p.expected = time.Now().Add(expectFor)
	p.mu.Unlock()
	select {
	case p.out <- struct{}{}:
	default:
	}
	p.lookout.Expect()
}

// HandleLoss tells the Post that a connection to another node is lost. The answers for which
// callers wait may now come through the store. A question that was sent over a connection does not
// make Run read the store, because its answer nearly always comes over that connection.
func (p *Post) HandleLoss() {
	if p.mayReceive() {
		p.lookout.Expect()
	}
}

// LookNow makes Run read the store now, because a message may have arrived. It returns without
// waiting for the read.
func (p *Post) LookNow() { p.lookout.LookNow() }

// Run sends and receives messages until ctx ends.
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
	p.lookout.Run(ctx, lookEvery, p.mayReceive, p.receiveAll)
}

// mayReceive reports whether a message may arrive soon.
func (p *Post) mayReceive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls) > 0 || time.Now().Before(p.expected)
}

// deliver sends the waiting messages. Messages that the store does not take are lost, as any
// message may be.
func (p *Post) deliver(ctx context.Context) {
	p.mu.Lock()
	mail := p.sending
	p.sending, p.bytes = nil, 0
	p.mu.Unlock()
	if len(mail) == 0 {
		return
	}

	brief, cancel := context.WithTimeout(ctx, timeout)
	err := p.mail.PutPeerMail(brief, mail)
	cancel()

	if err != nil {
		p.log.Debug("messages to other nodes are lost", "count", len(mail), "error", err)
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

// receiveAll takes all messages for this node from the store and passes them to Hear.
func (p *Post) receiveAll(ctx context.Context) {
	for p.receive(ctx) {
	}
}

// receive takes one page of messages from the store and passes them to Hear. It reports whether the
// store may have more.
func (p *Post) receive(ctx context.Context) (more bool) {
	brief, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	mail, err := p.mail.TakePeerMail(brief, p.self, page, pageBytes)
	if err != nil {
		if ctx.Err() == nil {
			p.log.Debug("cannot look for messages of other nodes", "error", err)
		}
		return false
	}
	size := 0
	for i := range mail {
		size += len(mail[i].Body)
		p.Hear(&mail[i])
	}
	return (len(mail) == page || size > pageBytes/2) && ctx.Err() == nil
}

// Hear passes one message to the handler, or to the call that waits for it.
func (p *Post) Hear(m *store.PeerMail) {
	if len(m.Body) == 0 {
		return
	}
	body := m.Body[1:]

	switch m.Body[0] {
	case question:
		from, id := m.From, m.ID
		p.handler.HandleQuestion(from, body, func(a []byte) { p.send(store.PeerMail{To: from, ID: newID(), Re: id}, answer, a) })
	case word:
		p.handler.HandleNote(m.From, body)
	case inquiry:
		p.handleInquiry(m)
	case crew:
		if h, ok := p.handler.(Foreman); ok {
			from, id := m.From, m.ID
			h.HandleCrew(from, body, func(a []byte) { p.send(store.PeerMail{To: from, ID: newID(), Re: id}, answer, a) })
		}
	case answer:
		p.mu.Lock()
		answered := p.calls[m.Re]
		p.mu.Unlock()
		if answered != nil {
			select {
			case answered <- body:
			default: // the call already has an answer
			}
		}
	}
}

func newID() model.RunID { return model.RunID(uuid.Must(uuid.NewV7())) }
