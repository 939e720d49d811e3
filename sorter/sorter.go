package sorter

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// Message is a message of a sender that numbers its messages.
type Message struct {
	// Sender names the sender. Names are compared byte by byte.
	Sender string `json:"sender"`
	// Epoch says in which epoch the sender sent the message. A sender that begins again with number
	// 1 uses a greater epoch.
	Epoch int64 `json:"epoch,omitempty"`
	// Number counts the messages of the epoch to this receiver, from 1.
	Number int64 `json:"number"`
	// Body is the content, in JSON.
	Body json.RawMessage `json:"body,omitempty"`
}

// Limits are the limits of a sorter. A zero field means the default of that field.
type Limits struct {
	// Window is how long a message waits for its predecessors. The default is 30 minutes.
	Window time.Duration
	// Senders is how many senders the sorter remembers. The default is 1,000. The sorter forgets a
	// sender only to make room for another sender. It forgets only a sender that has no waiting
	// messages and has been silent for Keep.
	Senders int
	// Keep is the shortest time for which the sorter remembers a silent sender. The default is a
	// day. When the sorter has forgotten a sender, it no longer recognises repetitions of messages
	// of that sender.
	Keep time.Duration
	// Waiting and Bytes limit the waiting messages of all senders together. The defaults are 1,000
	// messages and 256 KiB.
	Waiting, Bytes int
}

// withDefaults returns the limits with defaults in place of zeros.
func (l Limits) withDefaults() Limits {
	return Limits{
		Window: cmp.Or(l.Window, 30*time.Minute), Senders: cmp.Or(l.Senders, 1000), Keep: cmp.Or(l.Keep, 24*time.Hour),
		Waiting: cmp.Or(l.Waiting, 1000), Bytes: cmp.Or(l.Bytes, 256<<10),
	}
}

// MaxName is the largest size of the name of a sender, in bytes.
const MaxName = 256

// Sorter is the memory of a receiver. The zero value is empty. Keep a Sorter in the state of an
// entity. Do not use its fields: they are exported only for encoders.
type Sorter struct {
	Senders map[string]*Sender `json:"senders,omitempty"`
}

// Sender is what a sorter remembers of one sender.
type Sender struct {
	Epoch int64 `json:"epoch,omitempty"`
	Last  int64 `json:"last"` // number of the last message that was delivered or skipped
	// Heard is when the last message of the sender arrived.
	Heard time.Time `json:"heard"`
	// Waiting has the messages behind a gap, in the order of their numbers.
	Waiting []Held `json:"waiting,omitempty"`
}

// Held is a message that waits for its predecessors.
type Held struct {
	Number int64           `json:"number"`
	Since  time.Time       `json:"since"`
	Body   json.RawMessage `json:"body,omitempty"`
}

// size returns how many bytes of Limits.Bytes the message uses.
func (h *Held) size() int { return 32 + len(h.Body) }

// Receive accepts a message and returns the messages to handle now, in order. The message is not in
// the list if it waits for its predecessors. It is not in the list either if Receive drops it,
// because it was delivered before, was skipped, or belongs to an earlier epoch. The list starts
// with messages of any sender whose window is over. If Receive returns an error, it has not
// accepted the message, and the list has only the messages whose window is over.
func (s *Sorter) Receive(l Limits, m Message, now time.Time) ([]Message, error) {
	ready := s.Flush(l, now)
	if err := m.check(); err != nil {
		return ready, err
	}
	l = l.withDefaults()

	from, known := s.Senders[m.Sender]
	if !known {
		from = &Sender{Epoch: m.Epoch}
	}
	held := Held{Number: m.Number, Since: now, Body: m.Body}
	switch {
	case m.Epoch < from.Epoch || m.Epoch == from.Epoch && m.Number <= from.Last || m.Epoch == from.Epoch && from.has(m.Number):
		from.Heard = later(from.Heard, now) // from is in s: only known senders repeat messages
		return ready, nil
	case m.Number > 1 && (m.Epoch > from.Epoch || m.Number > from.Last+1):
		// The message will have to wait. The waiting messages of an earlier epoch are delivered
		// now, which makes room.
		if err := s.room(l, from, &m, &held); err != nil {
			return ready, err
		}
	}
	if !known {
		if err := s.admit(l, m.Sender, from, now); err != nil {
			return ready, err
		}
	}

	from.Heard = later(from.Heard, now)
	if m.Epoch > from.Epoch {
		ready = from.release(ready, m.Sender, len(from.Waiting))
		from.Epoch, from.Last = m.Epoch, 0
	}
	from.hold(held)

	return from.release(ready, m.Sender, 0), nil
}

// Flush returns the messages whose window is over, and later messages that no longer wait for a
// predecessor. The messages of each sender are in the order of their numbers.
func (s *Sorter) Flush(l Limits, now time.Time) (ready []Message) {
	window := l.withDefaults().Window
	for _, name := range slices.Sorted(maps.Keys(s.Senders)) {
		from := s.Senders[name]
		over := 0
		for i := range from.Waiting {
			if !from.Waiting[i].Since.Add(window).After(now) {
				over = i + 1 // together with all messages before it, to keep the order
			}
		}
		if over > 0 {
			ready = from.release(ready, name, over)
		}
	}
	return ready
}

// Due returns the earliest time at which Flush returns messages. ok is false if no message waits.
func (s *Sorter) Due(l Limits) (at time.Time, ok bool) {
	window := l.withDefaults().Window
	for _, from := range s.Senders {
		for i := range from.Waiting {
			if due := from.Waiting[i].Since.Add(window); !ok || due.Before(at) {
				at, ok = due, true
			}
		}
	}
	return at, ok
}

// Waiting returns how many messages wait for their predecessors, and their bytes.
func (s *Sorter) Waiting() (messages, bytes int) {
	for _, from := range s.Senders {
		messages += len(from.Waiting)
		for i := range from.Waiting {
			bytes += from.Waiting[i].size()
		}
	}
	return messages, bytes
}

// check refuses a message with wrong fields.
func (m *Message) check() error {
	switch {
	case m.Sender == "" || len(m.Sender) > MaxName:
		return fault.New(fault.Invalid, "the name of a sender has %d bytes, must be 1 to %d", len(m.Sender), MaxName)
	case m.Epoch < 0:
		return fault.New(fault.Invalid, "the epoch of sender %q is %d, must be >= 0", m.Sender, m.Epoch)
	case m.Number < 1:
		return fault.New(fault.Invalid, "a message of sender %q has number %d: numbers begin with 1", m.Sender, m.Number)
	}
	return nil
}

// room refuses a message that would have to wait, if there is no room for it. A message of a new
// epoch may use the room of the earlier epoch, because the messages of the earlier epoch no longer
// wait.
func (s *Sorter) room(l Limits, from *Sender, m *Message, h *Held) error {
	count, size := s.Waiting()
	if m.Epoch > from.Epoch {
		for i := range from.Waiting {
			count, size = count-1, size-from.Waiting[i].size()
		}
	}
	if count+1 > l.Waiting || size+h.size() > l.Bytes {
		return fault.New(fault.Exhausted, "message %d of sender %q must wait for its predecessors, but %d messages with %d bytes already wait; at most %d messages with %d bytes may wait",
			m.Number, m.Sender, count, size, l.Waiting, l.Bytes)
	}
	return nil
}

// admit adds a sender, if there is room. It may forget the sender that has been silent the longest.
func (s *Sorter) admit(l Limits, name string, from *Sender, now time.Time) error {
	if len(s.Senders) >= l.Senders {
		oldest := ""
		for _, other := range slices.Sorted(maps.Keys(s.Senders)) {
			o := s.Senders[other]
			if len(o.Waiting) == 0 && (oldest == "" || o.Heard.Before(s.Senders[oldest].Heard)) {
				oldest = other
			}
		}
		if oldest == "" || s.Senders[oldest].Heard.Add(l.Keep).After(now) {
			return fault.New(fault.Exhausted, "there are %d senders, which is the limit, and none of them has been silent for %s", len(s.Senders), l.Keep)
		}
		delete(s.Senders, oldest)
	}

	if s.Senders == nil {
		s.Senders = map[string]*Sender{}
	}
	s.Senders[name] = from
	return nil
}

// has reports whether the message with this number waits.
func (f *Sender) has(number int64) bool {
	_, found := f.find(number)
	return found
}

func (f *Sender) find(number int64) (int, bool) {
	return slices.BinarySearchFunc(f.Waiting, number, func(h Held, n int64) int { return cmp.Compare(h.Number, n) })
}

// hold adds a message to the waiting messages.
func (f *Sender) hold(h Held) {
	i, _ := f.find(h.Number)
	f.Waiting = slices.Insert(f.Waiting, i, h)
}

// release appends messages that no longer wait to ready. It takes the first messages, as many as
// the parameter first says, even if predecessors are missing. Then it takes further messages up to
// the next gap.
func (f *Sender) release(ready []Message, name string, first int) []Message {
	n := 0
	for n < len(f.Waiting) && (n < first || f.Waiting[n].Number == f.Last+1) {
		h := &f.Waiting[n]
		ready = append(ready, Message{Sender: name, Epoch: f.Epoch, Number: h.Number, Body: h.Body})
		f.Last = h.Number
		n++
	}
	if f.Waiting = slices.Delete(f.Waiting, 0, n); len(f.Waiting) == 0 {
		f.Waiting = nil
	}
	return ready
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
