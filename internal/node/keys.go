package node

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// followKeys keeps a keyring up to date with the keys and tenants in the store. The node that makes
// a change applies it immediately. The other nodes apply it soon after.
func (n *Node) followKeys(ctx context.Context, ring *authn.Keyring, log *slog.Logger) error {
	err := n.engine.Flow().Follow(ctx, []string{authn.KeySetting, authn.TenantSetting}, func(all []store.Setting) {
		ring.Set(readKeys(all, log))
	})
	if err != nil {
		return err
	}
	return n.engine.Flow().Follow(ctx, []string{authn.LoginSetting}, func(all []store.Setting) { ring.SetLogins(readLogins(all, log)) })
}

// readLogins reads sessions. A session that cannot be read is not accepted.
func readLogins(all []store.Setting, log *slog.Logger) (logins []authn.Login) {
	for i := range all {
		l, err := authn.ReadLogin(all[i].Tenant, all[i].Name, all[i].Body)
		if err != nil {
			log.Error("a session cannot be read and is not accepted", "session", all[i].Name, "tenant", all[i].Tenant, "error", err)
			continue
		}
		logins = append(logins, l)
	}
	return logins
}

// readKeys reads keys and disabled tenants. A damaged setting never lets a caller in: a key that
// readKeys cannot read is unknown, and a tenant whose record it cannot read is disabled.
func readKeys(all []store.Setting, log *slog.Logger) (keys []authn.Key, disabled map[string]bool) {
	disabled = map[string]bool{}
	for i := range all {
		s := &all[i]
		switch {
		case s.Kind == authn.KeySetting:
			k, err := authn.ReadKey(s.Tenant, s.Name, s.Body)
			if err != nil {
				log.Error("a key cannot be read and is not accepted", "key", s.Name, "tenant", s.Tenant, "error", err)
				continue
			}
			keys = append(keys, k)
		case s.Name == authn.TenantRecord:
			t, err := authn.ReadTenant(s.Tenant, s.Body)
			if err != nil {
				log.Error("the record of a tenant cannot be read; its keys are not accepted", "tenant", s.Tenant, "error", err)
			}
			if err != nil || t.Disabled {
				disabled[s.Tenant] = true
			}
		}
	}

	return keys, disabled
}

// Times of the record of uses of keys.
const (
	// useInterval is how often a node checks which keys were used.
	useInterval = time.Minute
	// useStep is the shortest time between two uses of a key that a node records. A key that is
	// used all the time costs one small commit per step.
	useStep = 10 * time.Minute
)

// recordKeyUses stores from time to time when each key was last used, until stop is called.
func (n *Node) recordKeyUses(ring *authn.Keyring, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		recorded := map[string]model.Time{}
		tick := time.NewTicker(useInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				n.storeKeyUses(ctx, ring, recorded, log)
			case <-ctx.Done():
				return
			}
		}
	})

	return func() {
		cancel()
		ended.Wait()
	}
}

// storeKeyUses stores the uses that are later than the uses that this node has recorded. If it
// cannot store a use, the next call tries again.
func (n *Node) storeKeyUses(ctx context.Context, ring *authn.Keyring, recorded map[string]model.Time, log *slog.Logger) {
	for _, u := range ring.Uses() {
		if u.At.Sub(recorded[u.ID]) < useStep {
			continue
		}

		body, err := json.Marshal(authn.KeyUse{At: u.At})
		if err == nil {
			key := store.SettingKey{Tenant: u.Tenant, Kind: authn.KeyUseSetting, Name: u.ID}
			err = n.engine.Flow().Change(ctx, key, func(old *store.Setting) ([]byte, bool, error) {
				return body, old == nil || u.At.Sub(authn.ReadKeyUse(old.Body)) >= useStep, nil
			})
		}

		switch {
		case err == nil:
			recorded[u.ID] = u.At
		case ctx.Err() == nil:
			log.Debug("the use of a key could not be recorded", "key", u.ID, "error", err)
		}
	}
}
