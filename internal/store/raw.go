package store

import (
	"encoding/json"

	"github.com/perdure/perdure/internal/model"
)

// RawRow is a row as it stands in the store, whatever it says: an object with a field per column. Bytes are texts of two hexadecimal digits each, behind \x.
type RawRow struct {
	Table string          `json:"table"`
	Run   model.RunID     `json:"-"`
	Row   json.RawMessage `json:"row"`
}
