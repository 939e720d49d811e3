package scenario

import (
	"encoding/binary"

	"github.com/perdure/perdure/internal/model"
)

// SendID returns the id of the signal that a block of a run sends.
func SendID(run model.RunID, b int) uint64 {
	h := uint64(14695981039346656037)
	for _, x := range run {
		h = (h ^ uint64(x)) * 1099511628211
	}
	return (h^uint64(b))*1099511628211 | 1<<63
}

// CallID returns the id of the update that a block of a run sends.
func CallID(run model.RunID, b int, slow bool) uint64 {
	id := SendID(run, b)
	switch {
	case !slow:
		return id &^ 3
	case id&8 != 0:
		return id | 7
	default:
		return id&^7 | 3
	}
}

// SignalID is the id in the payload of a signal.
func SignalID(p model.Payload) uint64 {
	if len(p.Data) != 8 && (p.Encoding != heavyEncoding || len(p.Data) < 8) {
		return 0
	}
	return binary.BigEndian.Uint64(p.Data)
}

// SignalPayload returns the payload of the signal with an id.
func SignalPayload(id uint64) model.Payload {
	return model.Payload{Data: binary.BigEndian.AppendUint64(nil, id)}
}
