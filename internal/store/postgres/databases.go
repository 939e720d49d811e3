package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// databasesMigration is the migration that makes room for groups in other databases.
const databasesMigration = 18

// MaxDatabases bounds the databases of a cluster, in addition to the first one. Every process has
// connections to all of them.
const MaxDatabases = 16

var databaseName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Member is a database that holds shard groups of a cluster, in addition to its first database.
type Member struct {
	Name   string
	URL    string
	Groups []string
}

// formatDatabases returns the stored form: eu=eu+eu-batch,us=us.
func formatDatabases(all []store.Database) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].Name + "=" + strings.Join(all[i].Groups, "+")
	}
	return strings.Join(texts, ",")
}

// parseDatabases reads the stored form.
func parseDatabases(text string) (all []store.Database, err error) {
	if text == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		name, groups, ok := strings.Cut(one, "=")
		if !ok || !databaseName.MatchString(name) || groups == "" {
			return nil, fmt.Errorf("%q does not name a database and its shard groups", one)
		}
		all = append(all, store.Database{Name: name, Groups: strings.Split(groups, "+")})
	}
	return all, nil
}

// namesOf lists the names of databases.
func namesOf(all []store.Database) (names []string) {
	for i := range all {
		names = append(names, all[i].Name)
	}
	slices.Sort(names)
	return names
}

// checkPlace refuses to open a database in a role that the database does not have in its cluster.
func (c *config) checkPlace(st *Status) error {
	wanted := slices.Sorted(slices.Values(c.Databases))
	has := namesOf(st.Databases)
	switch {
	case st.Member != "" && c.Member == "":
		return fault.WithHint(fault.New(fault.Conflict, "%s is the database %s of a cluster, not a store of its own", st.Store, st.Member),
			"open the first database of the cluster, and name this one in its configuration")
	case c.Member != "" && st.Member == "":
		return fault.WithHint(fault.New(fault.Conflict, "%s does not belong to the cluster as its database %s", st.Store, c.Member),
			"stop all processes, and run `perdure migrate` with the databases in its configuration")
	case c.Member != st.Member:
		return fault.New(fault.Conflict, "%s is the database %s of a cluster, and is configured as %s", st.Store, st.Member, c.Member)
	case c.Member != "" && c.Home != st.Home:
		return fault.New(fault.Conflict, "%s is the database %s of the cluster %s, and is configured for the cluster %s", st.Store, st.Member, st.Home, c.Home)
	case c.Member == "" && !slices.Equal(wanted, has):
		return fault.WithHint(fault.New(fault.Conflict, "the cluster in %s has the databases [%s] next to this one, and [%s] are configured",
			st.Store, strings.Join(has, ", "), strings.Join(wanted, ", ")),
			"configure every database of the cluster, or add one: stop all processes, and run `perdure migrate`")
	}
	return nil
}

// Divide prepares databases to hold shard groups of a store: it adds the groups that the store
// lacks, creates or upgrades the schema of each database, and binds it to the store under its name.
// No process may use the store. Divide may be repeated, and changes nothing the second time.
//
// A group that the store already has cannot move. Divide binds the databases first, and stores the
// new groups in the store last. If Divide ends in between, a store without other databases works as
// before. A store that has some does not open until the caller repeats Divide. The hint of the
// error says how.
func Divide(ctx context.Context, home Config, members []Member, groups []model.Group) (Status, error) {
	if err := checkMembers(members); err != nil {
		return Status{}, err
	}
	cfg, st, err := migrateAny(ctx, home)
	if err != nil {
		return st, err
	}
	if st.Member != "" {
		return st, fault.New(fault.Conflict, "%s is the database %s of a cluster: it has no databases of its own", st.Store, st.Member)
	}
	all, databases, err := place(&st, members, groups)
	if err != nil {
		return st, err
	}

	// A database cannot lose a group that it has, and the cluster cannot start before all its
	// databases have the same groups. So a first pass changes nothing and only finds out whether
	// one of the databases refuses the new groups.
	base := model.NewLayout(st.Shards, st.Groups).Ranges()[0].Count
	p := places{st.Groups, all, st.Databases, databases}
	if err := writePlaces(ctx, cfg, &p, true); err != nil {
		return st, err
	}
	for _, dry := range []bool{true, false} {
		for i := range members {
			err := bind(ctx, home, &members[i], binding{home: st.Cluster, base: base, groups: all, dry: dry})
			if err == nil {
				continue
			}
			err = fmt.Errorf("database %s: %w", members[i].Name, err)
			if !dry {
				err = unfinished(err, members, groups)
			}
			return st, err
		}
	}
	if err := writePlaces(ctx, cfg, &p, false); err != nil {
		return Status{}, unfinished(err, members, groups)
	}
	_, st, err = migrateAny(ctx, home)
	return st, err
}

// UnfinishedHint tells a person what to run if a database has shard groups that the first database
// of its cluster does not know: a Divide has ended in between.
func UnfinishedHint(has, known []model.Group) string {
	extra := slices.DeleteFunc(slices.Clone(has), func(g model.Group) bool { return slices.Contains(known, g) })
	if len(extra) == 0 {
		return "stop all processes, and repeat the `perdure migrate --groups …` that added the shard groups"
	}
	return "a command that adds shard groups has not ended: stop all processes, and repeat it, which continues: perdure migrate --groups " +
		model.FormatGroups(extra) + ", with @ and the name of the database after each group that is not in the first one"
}

// unfinished tells a person how to continue a Divide that may have changed some databases.
func unfinished(err error, members []Member, wanted []model.Group) error {
	if len(wanted) == 0 {
		return fault.WithHint(err, "run `perdure migrate` again with the same databases: it continues")
	}
	texts := make([]string, len(wanted))
	for i, g := range wanted {
		texts[i] = model.FormatGroups([]model.Group{g})
		if j := slices.IndexFunc(members, func(m Member) bool { return slices.Contains(m.Groups, g.Name) }); j >= 0 {
			texts[i] += "@" + members[j].Name
		}
	}
	return fault.WithHint(err, "some databases may have the new shard groups already: let no process start, and run the command again with the same databases, "+
		"which continues: perdure migrate --groups %s", strings.Join(texts, ","))
}

// errDry ends a transaction that only finds out whether a change is possible.
var errDry = errors.New("nothing changes")

// inTx runs a change in a transaction. With dry, it undoes the change.
func (m *migrator) inTx(ctx context.Context, dry bool, change func(tx pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		if err := change(tx); err != nil || !dry {
			return err
		}
		return errDry
	})
	if errors.Is(err, errDry) {
		return nil
	}
	return m.openOrConflict(ctx, err)
}

// places are the groups and databases of a store, before and after a change.
type places struct {
	groups, newGroups       []model.Group
	databases, newDatabases []store.Database
}

// errPlacesChanged refuses a change that was planned from groups and databases that the store no
// longer has.
func (m *migrator) errPlacesChanged() error {
	return fault.WithHint(fault.New(fault.Conflict, "another process has changed the shard groups of %s at the same time", m.cfg.publicURL()), "try again")
}

// checkMembers refuses databases whose names or groups are wrong.
func checkMembers(members []Member) error {
	if len(members) > MaxDatabases {
		return fault.New(fault.Invalid, "%d databases next to the first one are configured, at most %d are allowed", len(members), MaxDatabases)
	}
	names, groups := map[string]bool{}, map[string]string{}
	for i := range members {
		m := &members[i]
		switch {
		case !databaseName.MatchString(m.Name):
			return fault.New(fault.Invalid, "the name of a database is %.60q, must be lower-case letters, digits and dashes, at most 32, and begin with a letter", m.Name)
		case names[m.Name]:
			return fault.New(fault.Invalid, "the database %s is named twice", m.Name)
		case len(m.Groups) == 0:
			return fault.New(fault.Invalid, "the database %s holds no shard group", m.Name)
		}
		names[m.Name] = true

		for _, g := range m.Groups {
			if err := model.CheckGroupName(g); err != nil {
				return fault.New(fault.Invalid, "database %s: %w", m.Name, err)
			}
			if groups[g] != "" {
				return fault.New(fault.Invalid, "the shard group %s is in two databases, %s and %s", g, groups[g], m.Name)
			}
			groups[g] = m.Name
		}
	}
	return nil
}

// place returns all groups and all databases of the store, including the new groups and databases.
func place(st *Status, members []Member, wanted []model.Group) (all []model.Group, databases []store.Database, err error) {
	base := model.NewLayout(st.Shards, st.Groups).Ranges()[0].Count
	missing, err := missingGroups(st.Store, base, st.Groups, wanted)
	if err != nil {
		return nil, nil, err
	}
	isNew := func(g string) bool {
		return slices.ContainsFunc(missing, func(m model.Group) bool { return m.Name == g })
	}

	for _, d := range st.Databases {
		if !slices.ContainsFunc(members, func(m Member) bool { return m.Name == d.Name }) {
			return nil, nil, fault.New(fault.Conflict, "%s has a database %s, which is not configured: databases cannot be removed", st.Store, d.Name)
		}
	}
	for i := range members {
		m := &members[i]
		var has []string
		if j := slices.IndexFunc(st.Databases, func(d store.Database) bool { return d.Name == m.Name }); j >= 0 {
			has = st.Databases[j].Groups
		}
		for _, g := range has {
			if !slices.Contains(m.Groups, g) {
				return nil, nil, fault.New(fault.Conflict, "database %s holds the shard group %s, which is not configured: a group cannot move", m.Name, g)
			}
		}
		for _, g := range m.Groups {
			switch {
			case slices.Contains(has, g), isNew(g):
			case slices.ContainsFunc(st.Groups, func(h model.Group) bool { return h.Name == g }):
				return nil, nil, fault.New(fault.Conflict, "the shard group %s is in another database than %s: a group cannot move", g, m.Name)
			default:
				return nil, nil, fault.WithHint(fault.New(fault.Invalid, "database %s holds the shard group %s, which the store does not have", m.Name, g),
					"give its number of shards: perdure migrate --groups %s=64", g)
			}
		}
		databases = append(databases, store.Database{Name: m.Name, Groups: m.Groups})
	}
	return append(slices.Clone(st.Groups), missing...), databases, nil
}

// migrateAny brings the schema of a database up to date, whatever its role in a cluster is.
func migrateAny(ctx context.Context, c Config) (*config, Status, error) {
	cfg, err := c.read()
	if err != nil {
		return nil, Status{}, err
	}
	cfg.anyPlace = true
	st, err := migrate(ctx, cfg, cfg.NoMigrate)
	return cfg, st, err
}

// binding is what a database must know about its cluster.
type binding struct {
	home   string
	base   int
	groups []model.Group
	// has are the groups of the database when the change was planned.
	has []model.Group
	// dry finds out whether the database can be bound, and changes nothing but its schema.
	dry bool
}

// bind makes a database a member of a cluster. The database is empty, or belongs to the cluster
// under this name.
func bind(ctx context.Context, home Config, member *Member, b binding) error {
	c := home
	c.URL, c.Shards = member.URL, b.base
	cfg, st, err := migrateAny(ctx, c)
	if err != nil {
		return err
	}
	switch {
	case st.Cluster == b.home:
		return fault.New(fault.Conflict, "%s is the first database of the cluster", st.Store)
	case st.Member == member.Name && st.Home == b.home && model.FormatGroups(st.Groups) == model.FormatGroups(b.groups):
		return nil
	}

	m, err := newMigrator(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.close()
	b.has = st.Groups
	return m.inTx(ctx, b.dry, func(tx pgx.Tx) error { return m.bind(ctx, tx, member.Name, b) })
}

func (m *migrator) bind(ctx context.Context, tx pgx.Tx, name string, b binding) error {
	const look = `select epoch, member, home, databases, exists (select from {schema}.executions) or exists (select from {schema}.inbox) from {schema}.meta where id = 1`
	if err := m.lockMigrations(ctx, tx); err != nil {
		return err
	}
	if err := m.lockOut(ctx, tx); err != nil {
		return err
	}

	var epoch int64
	var member, databases string
	var home pgtype.UUID
	var used bool
	if err := tx.QueryRow(ctx, expand(m.cfg.schema, look)).Scan(&epoch, &member, &home, &databases, &used); err != nil {
		return err
	}
	switch {
	case member == "" && (epoch > 0 || used || databases != ""):
		return fault.WithHint(fault.New(fault.Conflict, "%s is a store of its own", m.cfg.publicURL()), "give the database an empty schema")
	case member != "" && (member != name || home.String() != b.home):
		return fault.New(fault.Conflict, "%s is the database %s of the cluster %s", m.cfg.publicURL(), member, home.String())
	}
	if err := m.checkBinding(ctx, tx, &b); err != nil {
		return err
	}

	if err := m.writeGroups(ctx, tx, b.base, b.groups); err != nil {
		return err
	}
	return m.keepOut(ctx, tx, `update {schema}.meta set member = $1, home = $2::text::uuid where id = 1`, name, b.home)
}

// checkBinding refuses a change of groups in three cases: the database no longer has the groups
// that it had when the change was planned, the change would remove a group, or the database has
// rows or messages for names that would belong to a new group.
func (m *migrator) checkBinding(ctx context.Context, tx pgx.Tx, b *binding) error {
	_, has, err := m.readGroups(ctx, tx)
	if err != nil {
		return err
	}
	now := model.FormatGroups(has)
	if now != model.FormatGroups(b.has) && now != model.FormatGroups(b.groups) {
		return m.errPlacesChanged()
	}
	if len(has) > len(b.groups) || now != model.FormatGroups(b.groups[:len(has)]) {
		return fault.WithHint(fault.New(fault.Conflict, "%s has the shard groups %s, and %s are wanted: groups cannot be removed", m.cfg.publicURL(), now, model.FormatGroups(b.groups)),
			"%s", UnfinishedHint(has, b.groups))
	}
	return m.expectAllUnused(ctx, tx, b.groups[len(has):])
}

// expectAllUnused calls expectUnused for each group.
func (m *migrator) expectAllUnused(ctx context.Context, tx pgx.Tx, groups []model.Group) error {
	for _, g := range groups {
		if err := m.expectUnused(ctx, tx, g.Name); err != nil {
			return err
		}
	}
	return nil
}

// lockMigrations waits for other processes that migrate or add groups.
func (m *migrator) lockMigrations(ctx context.Context, tx pgx.Tx) error {
	const wait = `select set_config('lock_timeout', $1, true)`
	if _, err := tx.Exec(ctx, wait, strconv.FormatInt(waitForOthers.Milliseconds(), 10)); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, m.lockID()); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, wait, strconv.FormatInt(waitForTables.Milliseconds(), 10))
	return err
}

// keepOut changes the one row of meta. It also makes sure that builds that do not support several
// databases can no longer open the store.
func (m *migrator) keepOut(ctx context.Context, tx pgx.Tx, change string, args ...any) error {
	tag, err := tx.Exec(ctx, expand(m.cfg.schema, change), args...)
	if err != nil {
		return err
	}
	mark, err := tx.Exec(ctx, expand(m.cfg.schema, `update {schema}.migrations set compatible = 0 where version = $1`), databasesMigration)
	if err == nil && (tag.RowsAffected() != 1 || mark.RowsAffected() != 1) {
		err = fmt.Errorf("store databases: %d and %d rows changed, want 1", tag.RowsAffected(), mark.RowsAffected())
	}
	return err
}

// openOrConflict classifies an error of a transaction that needs a store without nodes.
func (m *migrator) openOrConflict(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == codeLockNotAvailable {
		return fault.WithHint(fault.New(fault.Conflict, "add databases to %s: a transaction holds its tables", m.cfg.publicURL()),
			"stop all processes that use the store, and transactions that send messages, and try again")
	}
	if fault.KindOf(err) == fault.Conflict || fault.KindOf(err) == fault.Invalid {
		return err
	}
	return m.openError(ctx, err)
}

// writePlaces stores the groups and the databases of the cluster in its first database. With dry,
// it only finds out whether it could.
func writePlaces(ctx context.Context, cfg *config, p *places, dry bool) error {
	m, err := newMigrator(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.close()
	return m.inTx(ctx, dry, func(tx pgx.Tx) error { return m.writePlaces(ctx, tx, p) })
}

func (m *migrator) writePlaces(ctx context.Context, tx pgx.Tx, p *places) error {
	if err := m.lockMigrations(ctx, tx); err != nil {
		return err
	}
	base, has, err := m.readGroups(ctx, tx)
	if err != nil {
		return err
	}
	var databases string
	if err := tx.QueryRow(ctx, expand(m.cfg.schema, `select databases from {schema}.meta where id = 1`)).Scan(&databases); err != nil {
		return err
	}
	groups := model.FormatGroups(has)
	switch {
	case groups == model.FormatGroups(p.newGroups) && databases == formatDatabases(p.newDatabases):
		return nil
	case groups != model.FormatGroups(p.groups) || databases != formatDatabases(p.databases):
		return m.errPlacesChanged()
	}

	if err := m.lockOut(ctx, tx); err != nil {
		return err
	}
	added := slices.DeleteFunc(slices.Clone(p.newGroups), func(g model.Group) bool { return slices.Contains(has, g) })
	if err := m.expectAllUnused(ctx, tx, added); err != nil {
		return err
	}
	if err := m.writeGroups(ctx, tx, base, p.newGroups); err != nil {
		return err
	}
	return m.keepOut(ctx, tx, `update {schema}.meta set databases = $1 where id = 1`, formatDatabases(p.newDatabases))
}
