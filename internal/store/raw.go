package store

import (
	"crypto/sha256"
	"encoding/json"
	"hash"

	"github.com/perdure/perdure/internal/model"
)

// RawRow is a row as it stands in the store, whatever it says: an object with a field per column.
// Bytes are texts of two hexadecimal digits each, behind \x.
type RawRow struct {
	Table string          `json:"table"`
	Run   model.RunID     `json:"-"`
	Row   json.RawMessage `json:"row"`
}

// Fingerprint tells one row of an entity from every other one that it has had. It is made from raw
// rows, so it also does for a row that cannot be read. Its zero value has seen no row.
type Fingerprint struct{ seen hash.Hash }

// Add takes the row of an entity into account. It ignores rows of other tables.
func (f *Fingerprint) Add(row RawRow) {
	if row.Table != "entities" {
		return
	}
	if f.seen == nil {
		f.seen = sha256.New()
	}
	f.seen.Write(row.Row)
}

// Sum is the fingerprint. An entity without a row has one too.
func (f *Fingerprint) Sum() []byte {
	if f.seen == nil {
		return []byte("none")
	}
	return f.seen.Sum(nil)[:fingerprintBytes]
}

const fingerprintBytes = 16
