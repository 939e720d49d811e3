package userdb

import (
	"context"
	"encoding/hex"
	"encoding/json"
)

// searchRows is the number of rows in one query.
const searchRows = 100

// hit is a row that contains the text.
type hit struct {
	ID         string `json:"id"` // the id of a message, or the run of an outcome
	Step       string `json:"step"`
	Generation int64  `json:"generation"`
	Value      string `json:"value"` // in hexadecimal
}

// Search finds every message and outcome that contains a text, including messages and outcomes of
// other engines.
func (d *Database) Search(ctx context.Context, t Table, text string, found func(value []byte) error) error {
	last := hit{Generation: -1}
	for {
		args := []any{[]byte(text), int64(searchRows), last.ID}
		if t == Outcomes {
			args = append(args, last.Step, last.Generation)
		}
		var page string
		if err := d.read(ctx, d.sql(t, d.dialect.search[t]), args, &page); err != nil {
			return err
		}

		var hits []hit
		if err := json.Unmarshal([]byte(page), &hits); err != nil {
			return err
		}

		for _, last = range hits {
			value, err := hex.DecodeString(last.Value)
			if err == nil {
				err = found(value)
			}
			if err != nil {
				return err
			}
		}

		if len(hits) < searchRows {
			return nil
		}
	}
}
