package service

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/query"
	"github.com/perdure/perdure/internal/store"
)

// viewSetting is the kind of the setting of a saved view.
const viewSetting = "view"

// executionsPage is the page of the console whose queries the service checks.
const executionsPage = "executions"

// savedView is the stored form of a view.
type savedView struct {
	Page    string          `json:"page"`
	Query   string          `json:"query,omitempty"`
	Note    string          `json:"note,omitempty"`
	Display json.RawMessage `json:"display,omitempty"`
	Owner   string          `json:"owner,omitempty"`
	Created model.Time      `json:"created"`
	Changed model.Time      `json:"changed"`
}

// readView reads the setting of a view.
func readView(s *store.Setting) (api.View, error) {
	var v savedView
	if s.Damaged != nil {
		return api.View{}, fault.New(fault.Corrupt, "view %s: %s", s.Name, s.Damaged.Why)
	}
	if err := json.Unmarshal(s.Body, &v); err != nil {
		return api.View{}, fault.New(fault.Corrupt, "view %s: %w", s.Name, err)
	}
	return api.View{
		Name: s.Name, Page: v.Page, Query: v.Query, Note: v.Note, Display: v.Display, Owner: v.Owner, Created: v.Created, Changed: v.Changed, Version: s.Version,
	}, nil
}

// Views returns the saved views of a tenant. It leaves out views that cannot be read.
func (s *Service) Views(ctx context.Context, tenant string) ([]api.View, error) {
	if err := s.checkTenant("views", tenant); err != nil {
		return nil, err
	}
	found, err := s.flow().Settings(ctx, func(k store.SettingKey) bool { return k.Tenant == tenant && k.Kind == viewSetting })
	if err != nil {
		return nil, err
	}
	list := make([]api.View, 0, len(found))
	for i := range found {
		if v, err := readView(&found[i]); err == nil {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b api.View) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// SetView creates or replaces a view.
func (s *Service) SetView(ctx context.Context, c api.ViewChange) (api.View, error) {
	if err := s.checkView(&c); err != nil {
		return api.View{}, err
	}
	there, err := s.Views(ctx, c.Tenant)
	if err != nil {
		return api.View{}, err
	}
	known := slices.ContainsFunc(there, func(v api.View) bool { return v.Name == c.View.Name })
	if !known && len(there) >= api.MaxViews {
		return api.View{}, fault.New(fault.Exhausted, "set view %s: the tenant has %d views, which is the limit: delete some", c.View.Name, len(there))
	}

	now, owner := model.TimeOf(time.Now()), ""
	if call := authn.CallOf(ctx); call != nil {
		owner = call.Name
	}
	saved := savedView{Page: c.View.Page, Query: c.View.Query, Note: c.View.Note, Display: c.View.Display, Owner: owner, Created: now, Changed: now}
	key := store.SettingKey{Tenant: c.Tenant, Kind: viewSetting, Name: c.View.Name}
	err = s.flow().Change(ctx, key, func(old *store.Setting) ([]byte, bool, error) {
		if err := expect(key, old, c.Expected); err != nil {
			return nil, false, err
		}
		if old != nil {
			if was, err := readView(old); err == nil {
				saved.Owner, saved.Created = was.Owner, was.Created
			}
		}
		body, err := json.Marshal(saved)
		return body, true, err
	})
	if err != nil {
		return api.View{}, err
	}

	made, err := s.flow().Settings(ctx, func(k store.SettingKey) bool { return k == key })
	if err != nil || len(made) == 0 { // another caller has removed the view
		return c.View, err
	}
	return readView(&made[0])
}

// expect refuses a change of a setting that does not have the expected version. If want is nil, it
// accepts any version.
func expect(key store.SettingKey, old *store.Setting, want *int64) error {
	present := int64(0)
	if old != nil {
		present = old.Version
	}
	if want != nil && *want != present {
		return &store.VersionError{Key: key, Expected: *want, Present: present}
	}
	return nil
}

// checkView refuses a view that is not valid.
func (s *Service) checkView(c *api.ViewChange) error {
	v := s.check("set view")
	v.Tenant(c.Tenant)
	v.Text("the name", c.View.Name, api.MaxViewName)
	v.Text("the page", c.View.Page, api.MaxViewName)
	if len(c.View.Query) > api.MaxViewQuery {
		v.Wrong("the query has %d bytes, at most %d are allowed", len(c.View.Query), api.MaxViewQuery)
	} else if c.View.Page == executionsPage {
		if _, err := query.Parse(c.View.Query, time.Now()); err != nil {
			v.Wrong("the query: %v", err)
		}
	}
	if len(c.View.Note) > MaxNote {
		v.Wrong("the note has %d bytes, at most %d are allowed", len(c.View.Note), MaxNote)
	}
	if n := len(c.View.Display); n > api.MaxViewDisplay || n > 0 && !json.Valid(c.View.Display) {
		v.Wrong("display must be JSON of at most %d bytes", api.MaxViewDisplay)
	}
	return v.Err()
}

// DeleteView removes a view.
func (s *Service) DeleteView(ctx context.Context, t api.ViewTarget) error {
	v := s.check("delete view")
	v.Tenant(t.Tenant)
	v.Text("the name", t.Name, api.MaxViewName)
	if err := v.Err(); err != nil {
		return err
	}
	key := store.SettingKey{Tenant: t.Tenant, Kind: viewSetting, Name: t.Name}
	return s.flow().Change(ctx, key, func(old *store.Setting) ([]byte, bool, error) {
		if old == nil {
			return nil, false, fault.New(fault.NotFound, "there is no view %s", t.Name)
		}
		return nil, true, expect(key, old, t.Expected)
	})
}
