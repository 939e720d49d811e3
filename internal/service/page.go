package service

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// pageSize returns the size of a page for a requested limit.
func pageSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return min(limit, maxPage)
}

// cursor encodes a place in a list: a time, a run, and a text that distinguishes rows with the same
// time and run.
func cursor(at model.Time, run model.RunID, rest string) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(at))
	raw = append(raw, run[:]...)
	return base64.RawURLEncoding.EncodeToString(append(raw, rest...))
}

// parseCursor decodes a cursor.
func parseCursor(op, text string) (at model.Time, run model.RunID, rest string, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < 8+len(run) {
		return 0, run, "", notOurs(op, text)
	}
	n := copy(run[:], raw[8:])
	return model.Time(binary.BigEndian.Uint64(raw)), run, string(raw[8+n:]), nil
}

func notOurs(op, cursor string) error {
	return fault.New(fault.Invalid, "%s: the cursor %q does not come from an earlier page", op, cursor)
}
