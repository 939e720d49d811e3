package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// Limit is the rate of commits that the machine reaches without an engine.
type Limit struct {
	Commits  float64       // per second, one after the other
	Rows     int           // per commit
	P50, P99 time.Duration // duration of one commit
}

// RowRate is the number of rows per second.
func (l Limit) RowRate() float64 { return l.Commits * float64(l.Rows) }

// Limits are the raw limits of the machine with one store.
type Limits struct {
	Single, Fenced, Batched Limit // one row; fence and one row; fence and 200 rows
}

// batchRows is the number of rows of a large batch.
const batchRows = 200

// measureLimits measures commits without an engine.
func measureLimits(ctx context.Context, place Place, d time.Duration) (l Limits, err error) {
	b, err := openBare(ctx, place)
	if err != nil {
		return l, err
	}
	for _, c := range []struct {
		to     *Limit
		rows   int
		fenced bool
	}{{&l.Single, 1, false}, {&l.Fenced, 1, true}, {&l.Batched, batchRows, true}} {
		*c.to, err = measureLimit(d, c.rows, func() error { return b.commit(ctx, c.rows, c.fenced) })
		if err != nil {
			break
		}
	}
	return l, errors.Join(err, b.close(ctx))
}

// measureSync appends a small record to a growing file and waits until it is durable.
func measureSync(dir string, d time.Duration) (l Limit, err error) {
	file, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return l, err
	}
	l, err = measureLimit(d, 1, func() error {
		if _, err := file.Write(record); err != nil {
			return err
		}
		return syncData(file)
	})
	return l, errors.Join(err, file.Close(), os.Remove(file.Name()))
}

// measureLimit repeats fn for the time d, after a warm-up of a tenth of d.
func measureLimit(d time.Duration, rows int, fn func() error) (Limit, error) {
	for end := time.Now().Add(d / 10); time.Now().Before(end); {
		if err := fn(); err != nil {
			return Limit{}, err
		}
	}

	var times []time.Duration
	begin := time.Now()
	for last := begin; last.Sub(begin) < d; {
		if err := fn(); err != nil {
			return Limit{}, err
		}
		now := time.Now()
		times = append(times, now.Sub(last))
		last = now
	}

	n := float64(len(times))
	return Limit{Commits: n / time.Since(begin).Seconds(), Rows: rows, P50: quantile(times, 0.5), P99: quantile(times, 0.99)}, nil
}
