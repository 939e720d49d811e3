package flow

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// announced has the kinds of settings that people know, with the names that people use for them.
// Only nodes use the other kinds.
var announced = map[string]string{
	settingLimit: "limit", settingBreaker: "breaker", settingState: "breaker_state", settingQueue: "queue", settingTenant: "allowance",
}

// changesOf returns the changed settings as changes, for callers that watch. The caller must hold
// the lock.
func (f *Flow) changesOf(changed map[store.SettingKey]bool) (news []model.Change) {
	if f.node == nil {
		return nil
	}
	for key := range changed {
		of, known := announced[key.Kind]
		if record := key.Kind == settingTenant && key.Name != allowanceName; !known || record {
			continue // the record of a tenant is only for operators
		}

		_, exists := f.all[key]
		c := model.Change{
			Class: model.ClassSetting, Kind: model.ChangeChanged, Address: model.Address{Tenant: key.Tenant}, Of: of, Name: key.Name, At: f.node.Now(),
		}
		switch {
		case key.Kind == settingQueue && exists:
			c.Kind = model.ChangePaused
		case key.Kind == settingQueue:
			c.Kind = model.ChangeResumed
		case !exists:
			c.Kind = model.ChangeRemoved
		}
		news = append(news, c)
	}

	slices.SortFunc(news, func(a, b model.Change) int {
		return cmp.Or(cmp.Compare(a.Address.Tenant, b.Address.Tenant), cmp.Compare(a.Of, b.Of), cmp.Compare(a.Name, b.Name))
	})
	return news
}

// announce reports changes to the callers that watch.
func (f *Flow) announce(news []model.Change) {
	if len(news) > 0 {
		f.node.Announce(news)
	}
}
