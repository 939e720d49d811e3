package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// storeFindings are the checks of the store of a server.
func storeFindings(h *api.Health, sent, got time.Time) []finding {
	switch {
	case h.StoreError != "":
		return []finding{{"store", "problem", "the server cannot read its store: " + h.StoreError}}
	case h.Store == nil:
		return []finding{{"store", "warning", "the server is too old to tell how its store is"}}
	}
	s := h.Store
	found := []finding{{"schema", "ok", fmt.Sprintf("version %d, %d shards", s.Schema, s.Shards)}, clockFinding(s.Now, sent, got)}
	if s.Role != "" {
		found = append(found, databaseFindings(store.Inspection{Role: s.Role, Superuser: s.Superuser, Standby: s.Standby, Pooler: s.Pooler})...)
	}
	return found
}

// databaseFindings are the checks of the connection to a database server.
func databaseFindings(about store.Inspection) []finding {
	role := finding{"role", "ok", "the store uses the role " + about.Role}
	switch {
	case about.Standby:
		role = finding{"role", "problem", "the database is a standby and cannot be changed: connect to the primary"}
	case about.Superuser:
		role = finding{"role", "warning", fmt.Sprintf("the role %s is a superuser: use one that only owns the schema of the store", about.Role)}
	}

	pooler := finding{"pooler", "ok", "none between the store and the database"}
	switch about.Pooler {
	case "session":
		pooler.Detail = "a pooler in session mode"
	case "transaction":
		pooler.Detail = "statements are not prepared (prepare=off), as for a pooler in transaction mode; commits take longer"
	}
	return []finding{role, pooler}
}

// sessionFinding counts the programs that are connected to a server, by name and version. It is
// never a warning: different versions are normal during a deployment. After a deployment, they are
// a sign of a forgotten process.
func sessionFinding(sessions []api.WorkerSession) finding {
	agents := map[string]int{}
	for i := range sessions {
		agents[orText(sessions[i].Agent, "unknown")]++
	}
	counts := make([]string, 0, len(agents))
	for _, agent := range slices.Sorted(maps.Keys(agents)) {
		counts = append(counts, fmt.Sprintf("%d of %s", agents[agent], agent))
	}
	text := fmt.Sprintf("%d connected", len(sessions))
	if len(counts) > 0 {
		text += ": " + strings.Join(counts, ", ")
	}
	return finding{"workers", "ok", text}
}

// codeFindings looks for tasks and for calls of entities that no live process can execute, and for
// programs that run several versions of their code.
func codeFindings(ctx context.Context, b api.Backend, tenant string) ([]finding, error) {
	list, err := b.ListQueues(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var unserved []string
	for i := range list.Queues {
		if q := &list.Queues[i]; q.Open > 0 && len(q.Unserved) > 0 {
			unserved = append(unserved, fmt.Sprintf("%s (queue %s)", strings.Join(q.Unserved, ", "), q.Name))
		}
	}
	tasks := finding{"tasks", "ok", "a live process executes every activity that has open tasks"}
	if len(unserved) > 0 {
		tasks = finding{"tasks", "problem", "tasks wait for activities that no live process executes: " + strings.Join(unserved, "; ")}
	}

	calls, err := callFinding(ctx, b, tenant)
	if err != nil {
		return nil, err
	}

	workers, err := b.ListWorkers(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return []finding{tasks, calls, versionFinding(workers)}, nil
}

// maxCallReasons is the number of entities and services whose owner the doctor asks why calls wait.
// For the others it only checks whether any live process has the code.
const maxCallReasons = 200

// callFinding names the entities and services whose waiting calls no process can run.
func callFinding(ctx context.Context, b api.Backend, tenant string) (finding, error) {
	s := callSurvey{backend: b, keys: map[string]int{}, why: map[string]string{}, missing: map[string]string{}}
	for _, services := range []bool{false, true} {
		r := api.EntityListRequest{Tenant: tenant, Waiting: true, Services: services, Limit: 100}
		for {
			page, err := b.ListEntities(ctx, r)
			if err != nil {
				return finding{}, err
			}
			for i := range page.Entities {
				if err := s.look(ctx, page.Entities[i].Address); err != nil {
					return finding{}, err
				}
			}
			if r.Cursor = page.Cursor; r.Cursor == "" {
				break
			}
		}
	}

	return s.finding(), nil
}

// callSurvey collects entities whose calls cannot run, by type.
type callSurvey struct {
	backend api.Backend
	asked   int
	waiting int
	keys    map[string]int    // how many keys
	why     map[string]string // the reason of one key, with that key
	missing map[string]string // why no live process has the code; empty if a process has it
}

// look finds out why the calls of an entity wait.
func (s *callSurvey) look(ctx context.Context, a model.Address) error {
	s.waiting++
	if s.asked < maxCallReasons {
		s.asked++
		info, err := s.backend.Entity(ctx, a)
		switch {
		case fault.Is(err, fault.Corrupt):
			s.add(a, err.Error())
		case err != nil:
			return err
		case len(info.Reasons) > 0 && info.Reasons[0].Code.Strands() && info.Reasons[0].Code != model.WaitOwner:
			s.add(a, info.Reasons[0].String())
		}
		return nil
	}

	why, known := s.missing[a.Type]
	if !known {
		reason, err := s.backend.Missing(ctx, a, nil)
		if err != nil {
			return err
		}
		if reason != nil {
			why = reason.String()
		}
		s.missing[a.Type] = why
	}
	if why != "" {
		s.add(a, why)
	}
	return nil
}

func (s *callSurvey) add(a model.Address, why string) {
	if s.keys[a.Type]++; s.why[a.Type] == "" {
		s.why[a.Type] = nameOf(a) + " " + why
	}
}

// finding returns the result of the survey.
func (s *callSurvey) finding() finding {
	if len(s.keys) == 0 {
		return finding{"calls", "ok", fmt.Sprintf("stored calls wait for %d entities and services, and a live process has the code of each", s.waiting)}
	}
	all := make([]string, 0, len(s.keys))
	for _, typ := range slices.Sorted(maps.Keys(s.keys)) {
		all = append(all, fmt.Sprintf("%d of %s (%s)", s.keys[typ], entityWord(typ), s.why[typ]))
	}
	return finding{"calls", "problem", "calls wait for entities that no live process can run: " + strings.Join(all, "; ")}
}

// versionFinding lists the versions of the code that live processes run.
func versionFinding(workers []api.WorkerInfo) finding {
	counts := map[string]int{}
	for i := range workers {
		counts[orText(workers[i].Version, "unknown")] += 1 + workers[i].Alike
	}
	all := make([]string, 0, len(counts))
	for _, version := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s (%d)", version, counts[version]))
	}
	switch len(all) {
	case 0:
		return finding{"code", "ok", "no process runs code"}
	case 1:
		return finding{"code", "ok", "all workers have version " + all[0]}
	}
	return finding{"code", "warning", "workers have different versions: " + strings.Join(all, ", ")}
}
