package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// groupsMigration is the migration that makes room for shard groups.
const groupsMigration = 15

// errGroupsChanged refuses a process that has opened the store before groups were added. It would
// look for the addresses of these groups in the wrong shards.
var errGroupsChanged = errors.New("the shard groups of the store have changed since this process opened it: start the process again")

// expectSameGroups returns a function that reads the result of a query and returns an error if the
// store has other groups than this process.
func expectSameGroups(op string) func(pgx.Row) error {
	return func(row pgx.Row) error {
		var same bool
		if err := row.Scan(&same); err != nil {
			return err
		}
		if !same {
			return refusal(op, errGroupsChanged)
		}
		return nil
	}
}

// AddGroups adds shard groups to a store that no process uses. The store may already have some of
// the groups, with the same number of shards. No address moves: AddGroups refuses a group if the
// store has rows of names that would belong to it.
//
// Every process reads the groups when it opens the store, and relies on them until it ends. So
// AddGroups refuses while a node is alive, and fences nodes whose lease has expired. A process may
// have opened the store without registering. The store refuses that process when it registers. The
// store also refuses requests that the process puts into the inbox for names that choose a group.
// Older builds, which do not know groups, can no longer open the store.
func AddGroups(ctx context.Context, c Config, groups []model.Group) (Status, error) {
	if _, err := model.ParseGroups(model.FormatGroups(groups)); err != nil {
		return Status{}, fault.New(fault.Invalid, "%w", err)
	}
	cfg, err := c.read()
	if err != nil {
		return Status{}, err
	}
	st, err := migrate(ctx, cfg, true)
	if err != nil {
		return st, err
	}

	err = insist(ctx, func(ctx context.Context) error {
		m, err := newMigrator(ctx, cfg)
		if err != nil {
			return err
		}
		defer m.close()
		if err = m.addGroups(ctx, groups); err == nil {
			st, err = m.status(ctx)
		}
		return err
	})
	return st, err
}

// addGroups adds the groups that the store lacks, in one transaction.
func (m *migrator) addGroups(ctx context.Context, wanted []model.Group) error {
	err := pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		// Another process may be adding groups or migrating, so wait for its lock.
		if _, err := tx.Exec(ctx, `select set_config('lock_timeout', $1, true)`, strconv.FormatInt(waitForOthers.Milliseconds(), 10)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, m.lockID()); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `select set_config('lock_timeout', $1, true)`, strconv.FormatInt(waitForTables.Milliseconds(), 10)); err != nil {
			return err
		}

		base, has, err := m.readGroups(ctx, tx)
		if err != nil {
			return err
		}
		missing, err := missingGroups(m.cfg.publicURL(), base, has, wanted)
		if err != nil || len(missing) == 0 {
			return err
		}
		if err := m.lockOut(ctx, tx); err != nil {
			return err
		}
		for _, g := range missing {
			if err := m.expectUnused(ctx, tx, g.Name); err != nil {
				return err
			}
		}
		return m.writeGroups(ctx, tx, base, append(has, missing...))
	})

	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == codeLockNotAvailable {
		return fault.WithHint(fault.New(fault.Conflict, "add shard groups to %s: a transaction holds its tables", m.cfg.publicURL()),
			"stop all processes that use the store, and transactions that send messages, and try again")
	}
	if fault.KindOf(err) == fault.Conflict || fault.KindOf(err) == fault.Invalid {
		return err
	}
	return m.openError(ctx, err)
}

// readGroups returns the number of shards of the default group, and the other groups.
func (m *migrator) readGroups(ctx context.Context, tx pgx.Tx) (base int, groups []model.Group, err error) {
	var text string
	if err = tx.QueryRow(ctx, expand(m.cfg.schema, `select shards, groups from {schema}.meta where id = 1`)).Scan(&base, &text); err != nil {
		return 0, nil, err
	}
	groups, err = model.ParseGroups(text)
	return base, groups, err
}

// missingGroups returns the wanted groups that a store lacks.
func missingGroups(url string, base int, has, wanted []model.Group) (missing []model.Group, err error) {
	total := base
	for _, g := range has {
		total += g.Shards
	}
	for _, g := range wanted {
		i := slices.IndexFunc(has, func(h model.Group) bool { return h.Name == g.Name })
		switch {
		case i < 0:
			missing = append(missing, g)
			total += g.Shards
		case has[i].Shards != g.Shards:
			return nil, fault.New(fault.Conflict, "shard group %s of %s has %d shards, which cannot change: %d are wanted", g.Name, url, has[i].Shards, g.Shards)
		}
	}
	if total > model.MaxShards {
		return nil, fault.New(fault.Invalid, "%s would have %d shards: at most %d", url, total, model.MaxShards)
	}
	if n := len(has) + len(missing); n > model.MaxGroups {
		return nil, fault.New(fault.Invalid, "%s would have %d shard groups: at most %d", url, n, model.MaxGroups)
	}
	return missing, nil
}

// lockOut makes sure that no node works on the store until the transaction ends, and fences the
// nodes whose lease has expired. It takes the locks in the same order as all other transactions:
// nodes, fences, and then the inbox, which commits touch after their fence.
func (m *migrator) lockOut(ctx context.Context, tx pgx.Tx) error {
	exec := func(sql string) error {
		_, err := tx.Exec(ctx, expand(m.cfg.schema, sql))
		return err
	}
	if err := exec(`lock table {schema}.nodes in exclusive mode`); err != nil {
		return err
	}

	const alive = `select host || ':' || pid, expires - {now} from {schema}.nodes where expires > {now} order by expires desc limit 1`
	var node string
	var left int64
	err := tx.QueryRow(ctx, expand(m.cfg.schema, alive)).Scan(&node, &left)
	if err == nil {
		return fault.WithHint(
			fault.New(fault.Conflict, "add shard groups to %s: %s uses the store; its lease ends in %s if the node does not renew it",
				m.cfg.publicURL(), node, (time.Duration(left)*time.Microsecond).Round(time.Second)),
			"stop all processes that use the store, and try again")
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}

	for _, sql := range []string{
		`delete from {schema}.fences`, // waits for commits in flight; later commits fail
		`delete from {schema}.nodes`,
		`lock table {schema}.inbox in share row exclusive mode`,
	} {
		if err := exec(sql); err != nil {
			return err
		}
	}
	return nil
}

// expectUnused refuses a new group if the store already has rows of names that choose the group.
// These rows are in shards of another group.
func (m *migrator) expectUnused(ctx context.Context, tx pgx.Tx, group string) error {
	const look = `
select coalesce(
  (select workflow from {schema}.executions where workflow like $1 limit 1),
  (select type from {schema}.entities where type like $1 limit 1),
  (select type from {schema}.mailbox where type like $1 limit 1),
  (select workflow from {schema}.requests where workflow like $1 limit 1), '')`
	var name string
	// The name of a group has no character that has a meaning in a pattern.
	if err := tx.QueryRow(ctx, expand(m.cfg.schema, look), "%"+model.GroupEnding(group)).Scan(&name); err != nil {
		return err
	}
	if name == "" {
		var err error
		if name, err = m.addressedIn(ctx, tx, group); err != nil {
			return err
		}
	}
	if name != "" {
		return fault.WithHint(fault.New(fault.Conflict, "add shard group %s to %s: the store has rows of %q, which would belong to other shards", group, m.cfg.publicURL(), name),
			"choose another name for the group")
	}
	return nil
}

// addressedIn looks for a message or a request on its way to a name that chooses the group. It
// returns that name, or "" if there is no such message or request.
func (m *migrator) addressedIn(ctx context.Context, tx pgx.Tx, group string) (name string, err error) {
	rows, err := tx.Query(ctx, expand(m.cfg.schema, `select body from {schema}.messages union all select body from {schema}.inbox`))
	if err != nil {
		return "", err
	}
	layout := model.NewLayout(2, []model.Group{{Name: group, Shards: 1}})
	var body []byte
	_, err = pgx.ForEachRow(rows, []any{&body}, func() error {
		// Ignore a message that cannot be decoded: its receiver sets it aside, whatever its shard
		// is.
		if msg, err := model.DecodeMessage(body); err == nil && layout.Shard(msg.To) == 1 {
			name = msg.To.Type
		}
		return nil
	})
	return name, err
}

// writeGroups stores the groups, adds their shards, and keeps older builds out.
func (m *migrator) writeGroups(ctx context.Context, tx pgx.Tx, base int, groups []model.Group) error {
	total := base
	for _, g := range groups {
		total += g.Shards
	}
	one := func(sql string, args ...any) error {
		tag, err := tx.Exec(ctx, expand(m.cfg.schema, sql), args...)
		if err == nil && tag.RowsAffected() != 1 {
			return fmt.Errorf("store shard groups: %d rows changed, want 1", tag.RowsAffected())
		}
		return err
	}
	if err := one(`update {schema}.meta set groups = $1 where id = 1`, model.FormatGroups(groups)); err != nil {
		return err
	}
	if err := one(`update {schema}.migrations set compatible = 0 where version = $1`, groupsMigration); err != nil {
		return err
	}

	const add = `insert into {schema}.shards (shard) select generate_series($1::integer, $2::integer - 1) on conflict do nothing`
	if _, err := tx.Exec(ctx, expand(m.cfg.schema, add), base, total); err != nil {
		return err
	}
	var count int
	if err := tx.QueryRow(ctx, expand(m.cfg.schema, `select count(*) from {schema}.shards`)).Scan(&count); err != nil {
		return err
	}
	if count != total {
		return fmt.Errorf("store shard groups: the store has %d shards, want %d", count, total)
	}
	return nil
}
