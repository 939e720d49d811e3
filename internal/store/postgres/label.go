package postgres

import (
	"cmp"
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// writeLabels writes the labels of starts and changes of labels. It sends nothing for a batch
// without labels.
func (w *writer) writeLabels() {
	var begun []store.LabelRow
	for i := range w.batch.Starts {
		s := &w.batch.Starts[i]
		for _, l := range s.Start.Labels {
			begun = append(begun, store.LabelRow{RunKey: startKey(s), Label: l})
		}
	}

	w.labelRows(stStartLabel, begun)
	if len(w.batch.Labels) == 0 {
		return
	}

	var set, removed []store.LabelRow
	for _, r := range w.batch.Labels {
		if r.Label.Value == "" {
			removed = append(removed, r)
		} else {
			set = append(set, r)
		}
	}

	w.labelRows(stLabel, set)
	w.labelRows(stUnlabel, removed)
}

func (w *writer) labelRows(index int, rows []store.LabelRow) {
	n := len(rows)
	if n == 0 {
		return
	}
	o := w.sortKeys(n, func(i, j int) int {
		return cmp.Or(rows[i].Compare(rows[j].RunKey), strings.Compare(rows[i].Label.Name, rows[j].Label.Name))
	})
	w.use(index)
	w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
	w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].Run })
	w.texts(n, func(i int) string { return rows[o[i]].Label.Name })
	if index != stUnlabel {
		w.texts(n, func(i int) string { return rows[o[i]].Label.Value })
	}
	w.execute()
}

// LoadLabels returns the labels of runs.
func (s *Store) LoadLabels(ctx context.Context, keys []store.RunKey) (out []store.LabelRow, err error) {
	const load = `
select l.shard, l.run, l.name, l.value from unnest($1::smallint[], $2::uuid[]) u (shard, run)
cross join lateral (select x.shard, x.run, x.name, x.value from {schema}.labels x where x.shard = u.shard and x.run = u.run offset 0) l
order by l.shard, l.run, l.name`

	var shards []int16
	var runs []pgtype.UUID
	for _, k := range keys {
		if k.Shard < model.MaxShards {
			shards, runs = append(shards, int16(k.Shard)), append(runs, runArg(k.Run))
		}
	}

	if len(runs) == 0 {
		return nil, nil
	}

	err = s.read(ctx, "load labels", func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		rows, err := c.Query(ctx, s.sql(load), shards, runs)
		if err != nil {
			return err
		}
		var r store.LabelRow
		var run pgtype.UUID
		_, err = pgx.ForEachRow(rows, []any{&r.Shard, &run, &r.Label.Name, &r.Label.Value}, func() error {
			r.Run = run.Bytes
			out = append(out, r)
			return nil
		})
		return err
	})

	return out, err
}
