package cli

import (
	"context"
	"log/slog"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
)

// adminKeyFile is the file of the admin key.
type adminKeyFile struct {
	trouble

	file string
	ring *authn.Keyring
	log  *slog.Logger
}

// reload reads the key and uses it. The file may be incomplete while it is written, so the server
// reads it only when an operator asks for it.
func (k *adminKeyFile) reload(ctx context.Context, r reloading) {
	if !r.asked {
		return
	}
	key, err := adminAuth(k.file)
	if err != nil {
		k.set("the admin key in " + k.file + " cannot be used, so the former one stays: " + err.Error())
		k.log.Error("the admin key cannot be used; the former one stays", "file", k.file, "error", err)
		return
	}
	k.set("")
	if !k.ring.ReplaceAdmin(key) {
		return
	}

	k.log.Info("the admin key was replaced", "file", k.file)
	e := api.AuditEntry{Caller: "server", Door: "file", Action: "key:reload", Call: "ReloadAdminKey", Resource: "admin key " + k.file, Outcome: api.AuditDone}
	if err := r.note(ctx, e); err != nil {
		k.log.Error("the audit log has no entry for the change of the admin key", "error", err)
	}
}
