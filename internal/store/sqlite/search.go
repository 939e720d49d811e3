package sqlite

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/internal/store"
)

var _ store.Searcher = (*Store)(nil)

const sqlColumns = `select t.name, c.name from sqlite_schema t join pragma_table_info(t.name) c
	where t.type = 'table' and t.name like 'perdure\_%' escape '\' and c.type in ('BLOB', 'TEXT', 'ANY') order by 1, 2`

// Search reads all columns that can hold the text, in all our tables. It finds the tables in the
// catalog, so it does not miss a table that a later version adds.
func (s *Store) Search(ctx context.Context, text string, found func(value []byte) error) error {
	// Read all tables from one snapshot, so that Search does not miss a value that moves between
	// two tables.
	return s.read(ctx, "search", func(c *conn) error {
		var columns [][2]string
		err := c.query(sqlColumns, func(q *stmt) error {
			columns = append(columns, [2]string{q.text(0), q.text(1)})
			return nil
		})
		if err != nil {
			return err
		}
		for _, at := range columns {
			sql := fmt.Sprintf(`select cast(%[2]q as blob) from %[1]q where instr(cast(%[2]q as blob), ?1) > 0`, at[0], at[1])
			if err := c.query(sql, func(q *stmt) error { return found(q.raw(0)) }, []byte(text)); err != nil {
				return err
			}
		}
		return nil
	})
}
