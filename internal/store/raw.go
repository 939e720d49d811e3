package store

import (
	"crypto/sha256"
	"encoding/json"
	"hash"

	"github.com/perdure/perdure/internal/model"
)

// RawRow is a row exactly as it is stored, even if it is damaged. Row is an object with one field
// per column. Bytes are written in hexadecimal after the prefix \x.
type RawRow struct {
	Table string          `json:"table"`
	Run   model.RunID     `json:"-"`
	Row   json.RawMessage `json:"row"`
}

// Fingerprint identifies one version of the row of an entity. It is computed from raw rows, so it
// also works for a row that cannot be read. The zero value is a fingerprint without a row.
type Fingerprint struct{ seen hash.Hash }

// Add includes a row of the entity. It ignores rows of other tables.
func (f *Fingerprint) Add(row RawRow) {
	if row.Table != "entities" {
		return
	}
	if f.seen == nil {
		f.seen = sha256.New()
	}
	f.seen.Write(row.Row)
}

// Sum returns the fingerprint. An entity without a row also has a fingerprint.
func (f *Fingerprint) Sum() []byte {
	if f.seen == nil {
		return []byte("none")
	}
	return f.seen.Sum(nil)[:fingerprintBytes]
}

const fingerprintBytes = 16
