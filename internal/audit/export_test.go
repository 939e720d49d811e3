package audit

import "github.com/perdure/perdure/internal/authz"

// Row is a row of the table, for tests.
type Row struct {
	Action authz.Action
	Calls  []string
	Why    string
}

// Rows returns the table.
func Rows() (all []Row) {
	for _, r := range table {
		all = append(all, Row{r.action, r.calls, r.why})
	}
	return all
}
