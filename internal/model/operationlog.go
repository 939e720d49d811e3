package model

// Bounds of the log of one entity.
const (
	MaxOperationLog = 100      // operations
	MaxLogBytes     = 64 << 10 // bytes of all operations in the log
	MaxLoggedInput  = 1 << 10  // bytes of an input that is kept
)

// OperationRecord is an operation in the log of an entity.
type OperationRecord struct {
	Name string `cbor:"1,keyasint,omitempty"`
	At   Time   `cbor:"2,keyasint,omitempty"` // when its result was recorded
	// RequestID is the request id if a client called. From is the execution if an execution called.
	RequestID string `cbor:"3,keyasint,omitempty"`
	From      Link   `cbor:"4,keyasint,omitzero"`
	// Failure is nil if the operation succeeded. It has no stack.
	Failure *Failure `cbor:"5,keyasint,omitempty"`
	// Input is kept only on request, and only if it is small. Bytes is its size in any case.
	Input Payload `cbor:"6,keyasint,omitzero"`
	Bytes int     `cbor:"7,keyasint,omitempty"`
}

// RecordOf returns the record of a call.
func RecordOf(m *Message, f *Failure, at Time, inputs bool) OperationRecord {
	r := OperationRecord{Name: m.Name, At: at, RequestID: clientID(m), From: m.From, Bytes: m.Input.Size()}
	if inputs && r.Bytes <= MaxLoggedInput {
		r.Input = m.Input
	}
	if f != nil {
		r.Failure = f.Brief()
	}
	return r
}

// Size estimates the bytes of a record.
func (r *OperationRecord) Size() int {
	return 48 + len(r.Name) + len(r.RequestID) + len(r.From.Address.Key) + len(r.From.ID) + r.Input.Size() + r.Failure.Size()
}

// LogSize estimates the bytes of a log.
func LogSize(log []OperationRecord) (n int) {
	for i := range log {
		n += log[i].Size()
	}
	return n
}

// AppendLog returns a new log with further operations. It drops the oldest operations if there are
// more than most or the log is too large.
func AppendLog(log, more []OperationRecord, most int) []OperationRecord {
	all := make([]OperationRecord, 0, len(log)+len(more))
	all = append(append(all, log...), more...)
	first, size := len(all), 0
	for first > 0 && len(all)-first < min(most, MaxOperationLog) {
		if size += all[first-1].Size(); size > MaxLogBytes {
			break
		}
		first--
	}
	return all[first:]
}
