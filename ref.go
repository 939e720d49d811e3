package perdure

import (
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Ref is the address of an execution. It is comparable, and programs can store it. An empty Run
// means the current run.
type Ref struct{ Workflow, Key, Run string }

const runMark = "#run_"

// String returns workflow/key, followed by #run_… if the Ref names a run.
func (r Ref) String() string {
	if r.Run == "" {
		return r.Workflow + "/" + r.Key
	}
	return r.Workflow + "/" + r.Key + "#" + r.Run
}

// ParseRef reads the text form of a Ref.
func ParseRef(s string) (Ref, error) {
	name, key, ok := strings.Cut(s, "/")
	if !ok || name == "" || key == "" {
		return Ref{}, fault.New(fault.Invalid, "%q does not name an execution: write workflow/key", s)
	}
	r := Ref{Workflow: name, Key: key}
	if i := strings.LastIndex(key, runMark); i > 0 {
		r.Key, r.Run = key[:i], key[i+1:]
		if _, err := model.ParseRunID(r.Run); err != nil {
			return Ref{}, fault.New(fault.Invalid, "%q: %w", s, err)
		}
	}
	return r, nil
}

// Cancel asks the execution to end. The code of the execution can still clean up.
func (r Ref) Cancel(s Sender, reason string) error { return cancel(s, r, reason) }

// Target is an execution that may be signalled, resolved, cancelled or described: an Execution or a
// Ref.
type Target interface{ target() Ref }

func (r Ref) target() Ref { return r }

// address returns the address of the execution in the tenant of an app.
func (r Ref) address(h *host) model.Address {
	return model.Address{Tenant: h.tenant, Type: r.Workflow, Key: r.Key}
}

func (r Ref) run() (model.RunID, error) {
	if r.Run == "" {
		return model.RunID{}, nil
	}
	id, err := model.ParseRunID(r.Run)
	if err != nil {
		return id, fault.New(fault.Invalid, "%s: %w", r, err)
	}
	return id, nil
}

func (r Ref) api(h *host) (api.Target, error) {
	run, err := r.run()
	return api.Target{Address: r.address(h), Run: run}, err
}
