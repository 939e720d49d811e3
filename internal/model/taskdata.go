package model

// Bounds of what tasks write outside their history.
const (
	MaxTaskItems      = 256      // items of one write
	MaxTaskStates     = 256      // states of one task
	MaxTaskStateBytes = 1 << 20  // bytes of the names and values of all states of a task
	MaxLogLine        = 8 << 10  // bytes of a line
	MaxLogLines       = 10_000   // lines that one task may log, over all attempts
	MaxStreamItem     = 64 << 10 // bytes of one streamed value
	KeptStreamItems   = 4096     // streamed items of one task that are kept
)

// ItemKind says what a task writes. The numbers are stored and never reused.
type ItemKind uint8

// Kinds of items.
const (
	ItemSet    ItemKind = 1 // state Name becomes Value
	ItemRemove ItemKind = 2 // state Name is removed
	ItemClear  ItemKind = 3 // all states are removed
	ItemLog    ItemKind = 4 // a line: Level, Text

	ItemToken    ItemKind = 5 // a streamed piece of text
	ItemProgress ItemKind = 6 // a streamed report of progress
	ItemData     ItemKind = 7 // any streamed value
	ItemError    ItemKind = 8 // a streamed error that does not end the task
)

var itemNames = [...]string{
	ItemSet: "set", ItemRemove: "remove", ItemClear: "clear", ItemLog: "log",
	ItemToken: "token", ItemProgress: "progress", ItemData: "data", ItemError: "error",
}

// String returns the name on the wire.
func (k ItemKind) String() string {
	if k.Known() {
		return itemNames[k]
	}
	return "unknown"
}

// Known reports whether this build understands the kind.
func (k ItemKind) Known() bool { return k != 0 && int(k) < len(itemNames) }

// Streamed reports whether listeners receive an item of the kind.
func (k ItemKind) Streamed() bool { return k >= ItemToken && k <= ItemError }

// TaskItem is one item that a task writes.
type TaskItem struct {
	Kind  ItemKind `cbor:"1,keyasint"`
	Name  string   `cbor:"2,keyasint,omitempty"` // name of a state
	Value Payload  `cbor:"3,keyasint,omitzero"`  // value of a state, or streamed value
	Level int16    `cbor:"4,keyasint,omitempty"` // level of a line, as in log/slog
	Text  string   `cbor:"5,keyasint,omitempty"` // text of a line
	// At is when the task wrote it, by the clock of its worker; zero for now. The stored time is
	// never before the time of the previous item, and never in the future.
	At Time `cbor:"6,keyasint,omitempty"`
}

// Size estimates the bytes that the item takes in memory and on disk.
func (i *TaskItem) Size() int { return 64 + len(i.Name) + i.Value.Size() + len(i.Text) }

// TaskWrite is what a claim writes outside the history of its run. The owner applies all of it or
// nothing.
type TaskWrite struct {
	Ref ClaimRef `cbor:"1,keyasint"`
	// First is the number of the first item; the others follow it. Each claim numbers its items
	// from 1. If the number of an item is not higher than all numbers that the claim has written,
	// the item is a repetition and the owner skips it. If First is 0, no item is a repetition.
	First int64      `cbor:"2,keyasint,omitempty"`
	Items []TaskItem `cbor:"3,keyasint,omitempty"`
	// By is the name of the remote worker that writes, as in TaskReport.
	By string `cbor:"4,keyasint,omitempty"`
}

// Size estimates the bytes that the write takes in memory and on disk.
func (w *TaskWrite) Size() int {
	n := 128
	for i := range w.Items {
		n += w.Items[i].Size()
	}
	return n
}

// StreamItem is a streamed value as it is stored.
type StreamItem struct {
	// Position counts the streamed items of the task from 1, over all attempts, without a gap.
	Position int64
	Kind     ItemKind
	At       Time
	Value    Payload
}
