package cli

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Ids are long: a run id is run_ and 26 characters, a hashed key has 64. As with git and docker,
// people may type the beginning of an id. They may also paste a shortened id from a table. Such an
// id contains a mark where the table cut it.
//
// Without the mark, the command completes only keys that machines made, from six characters on. It
// does not complete keys that people chose: if order/4 does not exist, it must not become order/42.

const (
	// shortestHash is how many characters of a hash or a UUID a user must type at least.
	shortestHash = 6
	// maxCandidates is the largest number of ids that an error lists.
	maxCandidates = 10
	// maxScanned is the largest number of ids that a search compares with an abbreviation.
	maxScanned = 20_000
)

var (
	hashBeginning = regexp.MustCompile(`^[0-9a-f][0-9a-f-]*$`)
	machineMade   = regexp.MustCompile(`^([0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)
)

// abbreviation is a part of an id: its beginning, and its end if a table cut the middle out.
type abbreviation struct {
	text, head, tail string
	marked           bool // it contains the mark of a table
}

func abbreviationOf(text string) abbreviation {
	head, tail, marked := strings.Cut(text, cutMark)
	return abbreviation{text, head, tail, marked}
}

func (a *abbreviation) matches(id string) bool {
	return len(id) >= len(a.head)+len(a.tail) && strings.HasPrefix(id, a.head) && strings.HasSuffix(id, a.tail)
}

// search looks for the only id that matches an abbreviation.
type search struct {
	abbreviation

	what    string // such as "execution", for error texts
	found   []string
	scanned int
}

// add compares an id with the abbreviation. It reports whether the search is over.
func (s *search) add(id, name string) (over bool) {
	if s.matches(id) {
		s.found = append(s.found, name)
	}
	s.scanned++
	return len(s.found) > maxCandidates || s.scanned > maxScanned
}

// check returns an error if no id or several ids match the abbreviation.
func (s *search) check() error {
	switch {
	case s.scanned > maxScanned:
		return fault.New(fault.Invalid, "%s %s: there are too many ids to search; type the whole id", s.what, s.text)
	case len(s.found) == 0:
		return fault.New(fault.NotFound, "there is no %s %s", s.what, s.text)
	case len(s.found) == 1:
		return nil
	}
	list := s.found
	more := ""
	if len(list) > maxCandidates {
		list, more = list[:maxCandidates], ", and more"
	}
	return fault.New(fault.Invalid, "%s %s is ambiguous: %s%s", s.what, s.text, strings.Join(list, ", "), more)
}

// subject is an execution as the user typed it. Its key and its run may be abbreviated.
type subject struct {
	api.Target

	run string // an abbreviated run
}

// find completes the key of an execution and the id of its run.
func (s subject) find(ctx context.Context, b api.Backend) (t api.Target, err error) {
	t = s.Target
	if t.Address.Key, err = findKey(ctx, b, t.Address); err != nil || s.run == "" {
		return t, err
	}
	t.Run, err = findRun(ctx, b, t.Address, s.run)
	return t, err
}

// findKey completes the key of an execution. If an execution has exactly the typed key, findKey
// returns that key.
func findKey(ctx context.Context, b api.Backend, a model.Address) (string, error) {
	short := search{abbreviation: abbreviationOf(a.Key), what: "execution"}
	hash := !short.marked && len(a.Key) >= shortestHash && hashBeginning.MatchString(a.Key) && !machineMade.MatchString(a.Key)
	if !short.marked && !hash {
		return a.Key, nil
	}
	if _, err := b.Describe(ctx, api.Target{Address: a}); !fault.Is(err, fault.NotFound) {
		return a.Key, nil // the key or id exists, or the command itself reports the error
	}

	short.text = a.Type + "/" + a.Key
	r := api.ListRequest{Tenant: a.Tenant, Workflows: []string{a.Type}, KeyPrefix: short.head, Limit: 500}
	keys, err := scan(ctx, b, r, func(d *api.Description) (over bool) {
		key := d.Start.Address.Key
		return (short.marked || machineMade.MatchString(key)) && short.add(key, a.Type+"/"+key)
	})
	if short.scanned = max(short.scanned, keys); err != nil {
		return "", err
	}
	if hash && len(short.found) == 0 {
		return a.Key, nil // nothing was abbreviated
	}
	if err := short.check(); err != nil {
		return "", err
	}
	return strings.TrimPrefix(short.found[0], a.Type+"/"), nil
}

// findRun completes the id of a run of an execution.
func findRun(ctx context.Context, b api.Backend, a model.Address, text string) (model.RunID, error) {
	short := search{abbreviation: abbreviationOf(text), what: "run"}
	r := api.ListRequest{Tenant: a.Tenant, Workflows: []string{a.Type}, Key: a.Key, AllRuns: true, Limit: 500}
	_, err := scan(ctx, b, r, func(d *api.Description) (over bool) {
		id := d.Start.Run.String()
		return short.add(id, id)
	})
	if err == nil {
		err = short.check()
	}
	if err != nil {
		return model.RunID{}, fmt.Errorf("%s: %w", nameOf(a), err)
	}
	return model.ParseRunID(short.found[0])
}

// scan passes executions to look until look reports that the search is over, or until it has read
// maxScanned of them.
func scan(ctx context.Context, b api.Backend, r api.ListRequest, look func(d *api.Description) (over bool)) (seen int, err error) {
	for {
		page, err := b.List(ctx, r)
		if err != nil {
			return seen, err
		}
		for i := range page.Executions {
			if seen++; look(&page.Executions[i]) || seen > maxScanned {
				return seen, nil
			}
		}
		if r.Cursor = page.Cursor; r.Cursor == "" {
			return seen, nil
		}
	}
}

// findEntity completes the key of an entity that a table has shortened. It does not complete a key
// that the user has typed. A call of an entity that does not exist creates the entity, so a typed
// key may be a new one.
func findEntity(ctx context.Context, b api.Backend, a model.Address) (model.Address, error) {
	short := search{abbreviation: abbreviationOf(a.Key), what: "entity"}
	if !short.marked {
		return a, nil
	}
	info, err := b.Entity(ctx, a)
	if err != nil || info.Entity.Version > 0 || len(info.Waiting) > 0 {
		return a, err
	}

	short.text = nameOf(a)
	for r := (api.EntityListRequest{Tenant: a.Tenant, Type: a.Type, KeyPrefix: short.head, Limit: 500}); ; {
		page, err := b.ListEntities(ctx, r)
		if err != nil {
			return a, err
		}
		over := false
		for i := range page.Entities {
			key := page.Entities[i].Address.Key
			over = over || short.add(key, entityWord(a.Type)+"/"+key)
		}
		if r.Cursor = page.Cursor; over || r.Cursor == "" {
			break
		}
	}
	if err := short.check(); err != nil {
		return a, err
	}
	a.Key = strings.TrimPrefix(short.found[0], entityWord(a.Type)+"/")
	return a, nil
}

// complete completes the id of a session or a key. An id that machines made may be abbreviated.
func complete(what, text string, ids []string) (string, error) {
	if slices.Contains(ids, text) {
		return text, nil
	}
	short := search{abbreviation: abbreviationOf(text), what: what}
	if short.marked || len(strings.TrimPrefix(text, "session_")) >= shortestHash {
		for _, id := range ids {
			short.add(id, id)
		}
	}
	if err := short.check(); err != nil {
		return "", err
	}
	return short.found[0], nil
}

// findFingerprint completes the fingerprint of a request.
func findFingerprint(ctx context.Context, b api.Backend, r *api.DeadRequest) error {
	short := search{abbreviation: abbreviationOf(r.Fingerprint), what: "fingerprint"}
	if !short.marked && len(r.Fingerprint) < shortestHash {
		return nil
	}
	groups, err := b.GroupDead(ctx, api.DeadRequest{Tenant: r.Tenant, Limit: 1000})
	if err != nil {
		return err
	}

	known := map[string]bool{} // several activities may have the same fingerprint
	for i := range groups {
		if id := groups[i].Fingerprint; !known[id] {
			known[id] = true
			short.add(id, id)
		}
	}
	if known[r.Fingerprint] || !short.marked && len(short.found) == 0 {
		return nil
	}
	if err := short.check(); err != nil {
		return err
	}
	r.Fingerprint = short.found[0]
	return nil
}

// deadName is the id of a dead task as the user typed it. It may be abbreviated.
type deadName struct {
	tenant string
	text   string
	id     api.DeadID
	whole  bool
}

// deadNamed parses the id of a dead task, which may be abbreviated.
func (o *options) deadNamed(text string) (deadName, error) {
	id, err := api.ParseDeadID(o.tenant, text)
	if err == nil {
		return deadName{o.tenant, text, id, true}, nil
	}
	if rest, ok := strings.CutPrefix(text, "dead_"); !ok || len(rest) < shortestHash {
		return deadName{}, err
	}
	return deadName{tenant: o.tenant, text: text}, nil
}

// find completes the id.
func (n deadName) find(ctx context.Context, b api.Backend) (api.DeadID, error) {
	if n.whole {
		if _, err := b.ShowDead(ctx, n.id); !fault.Is(err, fault.NotFound) {
			return n.id, nil // the key or id exists, or the command itself reports the error
		}
	}

	// The id of a dead task contains the run. If the task was a step, the name of the step follows.
	// So an id that looks whole may be only the beginning of the ids of steps.
	short := search{abbreviation: abbreviationOf(n.text), what: "dead task"}
	for r := (api.DeadRequest{Tenant: n.tenant, Limit: 500}); ; {
		page, err := b.ListDead(ctx, r)
		if err != nil {
			return api.DeadID{}, err
		}
		over := false
		for i := range page.Tasks {
			id := page.Tasks[i].ID.String()
			over = over || short.add(id, id)
		}
		if r.Cursor = page.Cursor; over || r.Cursor == "" {
			break
		}
	}
	if n.whole && len(short.found) == 0 {
		return n.id, nil
	}
	if err := short.check(); err != nil {
		return api.DeadID{}, err
	}
	return api.ParseDeadID(n.tenant, short.found[0])
}
