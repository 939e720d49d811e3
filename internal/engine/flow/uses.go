package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Only the memory of each node knows which tasks hold a limit and which wait for it. To find out, a
// node writes a question as a setting, and each node answers with a setting of its own. The
// question stays until the next question replaces it, and an answer until the node's next answer
// replaces it.
const (
	settingAsk  = "limit_ask"  // a question; its version is its number
	settingUses = "limit_uses" // an answer, by epoch
)

const (
	maxUses = 20 // maxUses bounds the named holders and waiters of a limit.
	// maxKeys bounds how many keys of a limit an answer names. It names the keys with the most
	// waiters. An answer is a setting and must not grow without bound.
	maxKeys = 1000
	askWait = 4 * time.Second // a node without hints looks every two seconds
	askPoll = 10 * time.Millisecond
)

// LimitUse says which tasks hold a limit, or one key of a limit, and which tasks wait for it.
type LimitUse struct {
	Resource      rule.Resource
	Held, Waiting int
	// Holders and Waiters are some of these tasks. The waiters that have waited longest come first.
	Holders []model.TaskRef
	Waiters []gate.Waiter
	// If Keys is not 0, this LimitUse is the sum of this many keys that are not named.
	Keys int
}

// limit returns the limit without the key.
func (u *LimitUse) limit() rule.Resource {
	r := u.Resource
	r.Key = ""
	return r
}

// answer is the body of a settingUses.
type answer struct {
	To   int64
	Uses []LimitUse
}

// Uses returns the uses of this node. The gate knows which tasks hold a limit and which groups wait
// for it. The board knows how many tasks these groups have.
func (k *BoardGate) Uses(tasks *queue.Board) (list []LimitUse) {
	kept := tasks.CountKept(maxUses)
	for _, s := range k.Limits() {
		use := LimitUse{Resource: s.Resource, Held: len(s.Holders), Holders: s.Holders[:min(len(s.Holders), maxUses)]}
		for _, name := range s.Groups {
			group := kept[name]
			one := LimitUse{Waiting: group.Count}
			for i := range group.First {
				one.Waiters = append(one.Waiters, gate.Waiter{Ref: group.First[i].Ref, Since: group.First[i].Visible})
			}
			use.add(&one)
		}
		if use.Held+use.Waiting > 0 {
			list = append(list, use)
		}
	}

	return mergeUses(list)
}

func (u *LimitUse) add(o *LimitUse) {
	u.Held += o.Held
	u.Waiting += o.Waiting
	u.Keys += o.Keys
	u.Holders = append(u.Holders, o.Holders...)
	u.Waiters = append(u.Waiters, o.Waiters...)
	slices.SortFunc(u.Waiters, func(a, b gate.Waiter) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Ref.String(), b.Ref.String()))
	})
	u.Holders, u.Waiters = u.Holders[:min(len(u.Holders), maxUses)], u.Waiters[:min(len(u.Waiters), maxUses)]
}

// askNodes asks all nodes which tasks hold and which wait for limits. It leaves out nodes that do
// not answer in time. here is false if no node could be asked.
func (f *Flow) askNodes(ctx context.Context) (list []LimitUse, here bool, err error) {
	self := f.participant()
	if self != nil {
		list, here = self.uses(), true
	}
	if !f.store.Info().Shared {
		return list, here, nil
	}

	v, err := f.store.Members(ctx)
	if err != nil {
		return nil, false, err
	}

	open := map[string]bool{}
	for i := range v.Members {
		if self == nil || limit.Place(v.Members[i].Epoch) != self.place {
			open[strconv.FormatInt(v.Members[i].Epoch, 10)] = true
		}
	}

	if len(open) == 0 {
		return list, here, nil
	}
	number, err := f.question(ctx)
	if err != nil {
		return nil, false, err
	}

	for end := time.Now().Add(askWait); len(open) > 0 && time.Now().Before(end); {
		if err := f.Load(ctx, math.MaxInt64); err != nil {
			return nil, false, err
		}
		f.mu.Lock()

		for node := range open {
			var a answer
			if s, ok := f.all[store.SettingKey{Kind: settingUses, Name: node}]; ok && json.Unmarshal(s.Body, &a) == nil && a.To >= number {
				delete(open, node)
				list, here = append(list, a.Uses...), true
			}
		}

		f.mu.Unlock()
		if len(open) == 0 {
			break
		}

		select {
		case <-time.After(askPoll):
		case <-ctx.Done():
			return nil, false, fault.New(fault.KindOf(ctx.Err()), "ask the nodes which tasks hold limits: %w", context.Cause(ctx))
		}
	}

	return mergeUses(list), here, nil
}

// mergeUses adds up the answers of several nodes about the same key of a limit, and names at most
// maxKeys keys of each limit.
func mergeUses(list []LimitUse) []LimitUse {
	slices.SortStableFunc(list, compareUses)
	all := list[:0]
	for i := range list {
		if n := len(all); n > 0 && compareUses(all[n-1], list[i]) == 0 {
			all[n-1].add(&list[i])
		} else {
			all = append(all, list[i])
		}
	}

	var out []LimitUse
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].limit() == all[0].limit() {
			n++
		}
		out = append(out, nameKeys(all[:n])...)
		all = all[n:]
	}

	return out
}

func compareUses(a, b LimitUse) int {
	return cmp.Or(a.limit().Compare(b.limit()), cmp.Compare(min(a.Keys, 1), min(b.Keys, 1)), a.Resource.Compare(b.Resource))
}

// nameKeys sums up the uses of a limit beyond the first maxKeys.
func nameKeys(uses []LimitUse) []LimitUse {
	if len(uses) <= maxKeys {
		return uses
	}
	slices.SortStableFunc(uses, func(a, b LimitUse) int {
		return cmp.Or(cmp.Compare(min(a.Keys, 1), min(b.Keys, 1)), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Held, a.Held))
	})
	rest := LimitUse{Resource: uses[0].limit()}
	for i := maxKeys; i < len(uses); i++ {
		u := &uses[i]
		rest.Held, rest.Waiting, rest.Keys = rest.Held+u.Held, rest.Waiting+u.Waiting, rest.Keys+max(1, u.Keys)
	}
	uses = append(uses[:maxKeys:maxKeys], rest)
	slices.SortStableFunc(uses, compareUses)
	return uses
}

// question asks the other nodes and returns the number of the question. If several nodes ask at the
// same moment, one question is enough. An older question is not enough, because nodes may already
// have answered it. So question first reads the earlier questions. If another node writes its
// question after that read, before this node has written its own, that question is new enough.
func (f *Flow) question(ctx context.Context) (int64, error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	if err := f.refresh(ctx); err != nil {
		return 0, err
	}
	key := store.SettingKey{Kind: settingAsk, Name: "uses"}
	if _, err := f.put(ctx, store.Setting{SettingKey: key, Body: []byte("?")}); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[key].Version, nil
}

// reply answers the last question. If the write of the answer fails or its outcome is unknown, the
// next call of reply answers again. The caller must hold the turn.
func (f *Flow) reply(ctx context.Context) error {
	self := f.participant()
	f.mu.Lock()
	number := f.asked
	f.asked = 0
	f.mu.Unlock()
	if number == 0 || self == nil {
		return nil
	}

	body, err := json.Marshal(answer{number, self.uses()})
	if err != nil {
		return fault.New(fault.Internal, "answer which tasks hold limits: %w", err)
	}

	landed, err := f.put(ctx, store.Setting{SettingKey: store.SettingKey{Kind: settingUses, Name: strconv.FormatInt(int64(self.place), 10)}, Body: body})
	if !landed {
		f.mu.Lock()
		f.asked, f.again = max(f.asked, number), true
		f.mu.Unlock()
	}

	return err
}

// obsolete returns the settings of places that are gone, and this node's statement about claims of
// dead nodes, in order. The caller must hold the lock.
func (f *Flow) obsolete(place limit.Place, gone map[limit.Place]bool) (old []store.Setting) {
	for _, key := range slices.SortedFunc(maps.Keys(f.all), store.SettingKey.Compare) {
		p, ok := statingPlace(key)
		if ok && (gone[p] || p == place && key.Kind == settingFound) {
			old = append(old, f.all[key])
		}
	}
	return old
}

// statedPlaces returns the places that have statements about claims of dead nodes, or answers about
// limits.
func (f *Flow) statedPlaces() map[limit.Place]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	places := map[limit.Place]bool{}
	for key := range f.all {
		if p, ok := statingPlace(key); ok {
			places[p] = true
		}
	}
	return places
}

// statingPlace returns the place to which a setting belongs. ok is false if the setting belongs to
// no place.
func statingPlace(key store.SettingKey) (p limit.Place, ok bool) {
	if key.Kind != settingFound && key.Kind != settingUses {
		return 0, false
	}
	n, err := strconv.ParseInt(key.Name, 10, 64)
	return limit.Place(n), err == nil
}
