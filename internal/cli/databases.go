package cli

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// databasesVariable has the databases that hold shard groups, as --databases does.
const databasesVariable = "PERDURE_DATABASES"

// databaseURLs returns the URLs of the databases by their names. A name without a URL, and a name
// that occurs twice, get an empty URL, which the node refuses.
func (o *options) databaseURLs() map[string]string {
	all := map[string]string{}
	for item := range strings.FieldsSeq(o.databases) {
		name, url, _ := strings.Cut(item, "=")
		if _, twice := all[name]; twice {
			url = ""
		}
		all[name] = url
	}
	return all
}

// showDatabases returns the databases without their passwords, so that people may see them.
func showDatabases(text string) string {
	var all []string
	for item := range strings.FieldsSeq(text) {
		name, url, ok := strings.Cut(item, "=")
		if !ok || model.CheckGroupName(name) != nil { // the name may be a piece of a password
			name, url = "?", "?"
		}
		all = append(all, name+"="+withoutPassword(url))
	}
	return strings.Join(all, " ")
}

// checkDatabasePasswords refuses the password of a database if other users can read the password,
// as checkPassword does for the password of the store.
func (f *serveFlags) checkDatabasePasswords(urls map[string]string, log *slog.Logger) error {
	for name, url := range urls {
		if !hasPassword(url) {
			continue
		}
		switch place := f.from["databases"]; {
		case place == flagOrigin && f.production:
			return fault.WithHint(fault.New(fault.Invalid, "--databases has the password of %s, and other users of this machine can read the arguments of a process", name),
				"use $PERDURE_DATABASES, a configuration file that only this user can read, or a password file ($PGPASSFILE)")
		case place == flagOrigin:
			log.Warn("--databases has a password, and other users of this machine can read the arguments of a process; use $PERDURE_DATABASES instead", "database", name)
		case f.from.file("databases"):
			return checkOwnerReads("the password of database "+name, configFile(f.config))
		}
	}
	return nil
}

// partFindings checks the clocks of the databases that hold shard groups, and the connections to
// them. There are no such findings if the store is one database.
func partFindings(ctx context.Context, st store.Store) (found []finding) {
	divided, ok := st.(interface {
		Part(n int) (part store.Part, name string)
	})
	if !ok {
		return nil
	}

	for i, d := range st.Info().Databases {
		part, _ := divided.Part(i + 1)
		for _, f := range onePartFindings(ctx, part) {
			f.Check += " of database " + d.Name
			found = append(found, f)
		}
	}
	return found
}

// onePartFindings checks one database. If the database does not answer, that is a finding: the
// command still checks the rest.
func onePartFindings(ctx context.Context, part store.Part) []finding {
	sent := time.Now()
	view, err := part.Members(ctx)
	if err != nil {
		return []finding{{"clock", "problem", err.Error()}}
	}
	found := []finding{clockFinding(view.Now, sent, time.Now())}

	if inspected, ok := part.(store.Inspected); ok {
		about, err := inspected.Inspect(ctx)
		if err != nil {
			return append(found, finding{"role", "problem", err.Error()})
		}
		found = append(found, databaseFindings(about)...)
	}
	return found
}
