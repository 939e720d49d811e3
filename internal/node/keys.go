package node

import (
	"context"
	"log/slog"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/store"
)

// followKeys keeps a keyring up to date with the keys and tenants in the store. The node that
// changes one applies it at once, the others soon after.
func (n *Node) followKeys(ctx context.Context, ring *authn.Keyring, log *slog.Logger) error {
	return n.engine.Flow().Follow(ctx, []string{authn.KeySetting, authn.TenantSetting}, func(all []store.Setting) {
		ring.Set(readKeys(all, log))
	})
}

// readKeys reads keys and disabled tenants. What cannot be read lets no caller in: an unreadable
// key is unknown, and the tenant of an unreadable record is disabled.
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
