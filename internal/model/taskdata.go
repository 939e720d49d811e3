package model

// Bounds of what tasks write beside their history.
const (
	MaxTaskItems      = 256      // of one write
	MaxTaskStates     = 256      // names that have a value, of one task
	MaxTaskStateBytes = 1 << 20  // of their names and values together
	MaxLogLine        = 8 << 10  // bytes of a line
	MaxLogLines       = 10_000   // that one task may log, over all attempts
	MaxStreamItem     = 64 << 10 // bytes of one streamed value
	KeptStreamItems   = 4096     // the last ones of a task that can be replayed
)

// ItemKind says what a task writes. The numbers are stored and never reused.
type ItemKind uint8

// Kinds of items.
const (
	ItemSet    ItemKind = 1 // state Name becomes Value
	ItemRemove ItemKind = 2 // state Name is there no more
	ItemClear  ItemKind = 3 // no state is there any more
	ItemLog    ItemKind = 4 // a line: Level, Text

	ItemToken    ItemKind = 5 // a streamed piece of text
	ItemProgress ItemKind = 6 // a streamed note of how far it is
	ItemData     ItemKind = 7 // any streamed value
	ItemError    ItemKind = 8 // a streamed error that does not end the task
)

var itemNames = [...]string{
	ItemSet: "set", ItemRemove: "remove", ItemClear: "clear", ItemLog: "log",
	ItemToken: "token", ItemProgress: "progress", ItemData: "data", ItemError: "error",
}

// String names the kind on the wire and for people.
func (k ItemKind) String() string {
	if k.Known() {
		return itemNames[k]
	}
	return "unknown"
}

// Known reports whether this build understands the kind.
func (k ItemKind) Known() bool { return k != 0 && int(k) < len(itemNames) }

// Streamed reports whether an item of the kind goes to whoever listens.
func (k ItemKind) Streamed() bool { return k >= ItemToken && k <= ItemError }

// TaskItem is one thing that a task writes.
type TaskItem struct {
	Kind  ItemKind `cbor:"1,keyasint"`
	Name  string   `cbor:"2,keyasint,omitempty"` // of a state
	Value Payload  `cbor:"3,keyasint,omitzero"`  // of a state, or streamed
	Level int16    `cbor:"4,keyasint,omitempty"` // of a line, as log/slog has them
	Text  string   `cbor:"5,keyasint,omitempty"` // of a line
	// At is when the task wrote it, by the clock of its worker; zero for now. What is kept is never
	// before the item in front of it, and never in the future.
	At Time `cbor:"6,keyasint,omitempty"`
}

// Size is roughly what the item costs in memory and on disk.
func (i *TaskItem) Size() int { return 64 + len(i.Name) + i.Value.Size() + len(i.Text) }

// TaskWrite is what a claim writes beside the history of its run: all of it, or nothing.
type TaskWrite struct {
	Ref ClaimRef `cbor:"1,keyasint"`
	// First is the number of the first item; the others follow it. Numbers begin at 1 with each
	// claim. Items whose number is not above the highest one that was written are repetitions, and
	// are left out. 0 says that nothing in it is a repetition.
	First int64      `cbor:"2,keyasint,omitempty"`
	Items []TaskItem `cbor:"3,keyasint,omitempty"`
}

// Size is roughly what the write costs in memory and on disk.
func (w *TaskWrite) Size() int {
	n := 128
	for i := range w.Items {
		n += w.Items[i].Size()
	}
	return n
}

// StreamItem is a streamed value as it is kept.
type StreamItem struct {
	// Position counts the streamed items of the task from 1, over all attempts, without a gap.
	Position int64
	Kind     ItemKind
	At       Time
	Value    Payload
}
