package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
)

// Tenant reads and changes the allowance of the tenant that an app works in.
type Tenant struct{ app *App }

// Tenant returns the tenant of the app. For an app that Dial has opened, this is the tenant of the
// app's API key, or the tenant that an app with an admin key has chosen (Dialer.Tenant). For all
// other apps it is "default".
func (a *App) Tenant() Tenant { return Tenant{a} }

// Name returns the name of the tenant.
func (t Tenant) Name() string { return t.app.host.tenant }

// Allowance returns how much of the system the tenant may use.
func (t Tenant) Allowance(ctx context.Context) (Allowance, error) {
	a, err := t.app.cfg.Backend.Allowance(ctx, t.app.host.tenant)
	return Allowance{OpenExecutions: a.Open, StartsPerSecond: a.Starts, Weight: a.Weight, Retention: a.Retention}, public(err)
}

// SetAllowance changes how much of the system the tenant may use. It is for operators: a server
// refuses this call to an app without an admin key. A refused call changes nothing. After
// ErrUnavailable, the allowance may have changed.
func (t Tenant) SetAllowance(ctx context.Context, a Allowance) error {
	return public(t.app.cfg.Backend.SetAllowance(ctx, t.app.host.tenant, api.Allowance{Open: a.OpenExecutions, Starts: a.StartsPerSecond, Weight: a.Weight, Retention: a.Retention}))
}

// Allowance is how much of the system a tenant may use. A zero field sets no bound. See
// docs/tenants.md.
type Allowance struct {
	// OpenExecutions is how many executions may be open. While that many are open, a client that
	// starts another execution gets ErrExhausted.
	OpenExecutions int64
	// StartsPerSecond is how many executions clients may start per second on each node.
	StartsPerSecond int64
	// Weight is the share of this tenant, relative to other tenants whose tasks wait for the same
	// workers. Zero means 1.
	Weight int
	// Retention is how long the engine keeps closed executions whose workflow has no Retain. Zero
	// means the setting of the node.
	Retention time.Duration
}
