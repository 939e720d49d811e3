package model

// History is a whole run: its start, events 1 … n, and its end (Running while it is open).
type History struct {
	Start   Start
	Events  []Event
	Outcome Outcome
}

// Past is the past of a run that a fork, a retry, a reset or an import begins. Its events become
// Start.Carried of the new run, with their original times.
type Past struct {
	Events []PastEvent `cbor:"1,keyasint,omitempty"`
	// Began, Seeds, Identity, Earlier and Source are copied to the start. So is Origin, unless the
	// new run replaces a run: then the owner takes Origin from the replaced run.
	Began    Time   `cbor:"2,keyasint,omitempty"`
	Seeds    []Seed `cbor:"3,keyasint,omitempty"`
	Identity RunID  `cbor:"4,keyasint,omitzero"`
	Source   Source `cbor:"5,keyasint,omitzero"`
	Origin   []byte `cbor:"6,keyasint,omitempty"`
	// Next is the position that the next event of the replaced run would get, if that run was open;
	// 0 if it was closed. If the run has more events by now, the owner refuses the start, because
	// the new events would be lost.
	Next int64 `cbor:"7,keyasint,omitempty"`
	// Status, Output, Failure and At are the end of a run that is stored as closed; zero for a run
	// that continues.
	Status  Status   `cbor:"8,keyasint,omitempty"`
	Output  Payload  `cbor:"9,keyasint,omitzero"`
	Failure *Failure `cbor:"10,keyasint,omitempty"`
	At      Time     `cbor:"11,keyasint,omitempty"`
	Earlier []RunID  `cbor:"12,keyasint,omitempty"`
	// Begins is copied to the start, so that replayed code sees the same times.
	Begins Time `cbor:"13,keyasint,omitempty"`
}

// PastEvent is an event with its kind and time, as it is stored inside a start or a message.
type PastEvent struct {
	Kind  EventKind `cbor:"1,keyasint"`
	At    Time      `cbor:"2,keyasint,omitempty"`
	Event Event     `cbor:"3,keyasint"`
}

// PastOf returns events in the form in which a start or a message stores them.
func PastOf(events []Event) []PastEvent {
	var past []PastEvent
	for i := range events {
		e := events[i]
		e.Seq, e.At, e.Kind = 0, 0, 0 // encoding drops them, so a decoded past equals this one
		past = append(past, PastEvent{events[i].Kind, events[i].At, e})
	}
	return past
}

// EventsOf is the reverse of PastOf. It numbers the events from 1.
func EventsOf(past []PastEvent) []Event {
	var events []Event
	for i := range past {
		e := past[i].Event
		e.Seq, e.At, e.Kind = int64(i+1), past[i].At, past[i].Kind
		events = append(events, e)
	}
	return events
}

// Size estimates the bytes that the past takes in memory and on disk.
func (p *Past) Size() int {
	n := 128 + p.Output.Size()
	for i := range p.Events {
		n += p.Events[i].Event.Size()
	}
	return n
}

// Seed says which run seeds the random numbers of the code before a position.
type Seed struct {
	Until int64 `cbor:"1,keyasint,omitempty"`
	Run   RunID `cbor:"2,keyasint,omitzero"`
}

// Source says where the past of a run comes from: the events of another run up to and including
// Position.
type Source struct {
	Address  Address `cbor:"1,keyasint,omitzero"`
	Run      RunID   `cbor:"2,keyasint,omitzero"`
	Position int64   `cbor:"3,keyasint,omitempty"`
}

// IsZero reports whether the run has no past of another run.
func (s Source) IsZero() bool { return s == Source{} }

// Zero returns the time of event 0 in the history. That is when the run began or, if it has the
// past of another run, when that run began.
func (s *Start) Zero() Time {
	if s.Began != 0 {
		return s.Began
	}
	return s.At
}

// IdentityRun returns the run whose id other systems see. Steps and children use this id outside
// the engine, for example in idempotency keys.
func (s *Start) IdentityRun() RunID {
	if !s.Identity.IsZero() {
		return s.Identity
	}
	return s.Run
}

// SeedAt returns the run that seeds the random numbers of the code at a position.
func (s *Start) SeedAt(position int64) RunID {
	for _, seed := range s.Seeds {
		if position < seed.Until {
			return seed.Run
		}
	}
	return s.IdentityRun()
}

// Blank returns a placeholder for an event that is left out of a past, so that the events after it
// keep their positions. No step waits for the placeholder. It keeps the names of the original
// event.
func Blank(e *Event) Event {
	return Event{Seq: e.Seq, At: e.At, Kind: EventWatched, ID: e.ID, Name: e.Name, Target: e.Target}
}

// Blank reports whether the event is a placeholder for an event that was left out.
func (e *Event) Blank() bool { return e.Kind == EventWatched && e.Waiter() == Link{} }
