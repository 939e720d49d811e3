package api

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Lifetimes of sessions of browsers.
const (
	DefaultLogin = 12 * time.Hour
	MaxLogin     = 7 * 24 * time.Hour
)

// LoginRequest opens a session for a caller that a server has authenticated.
type LoginRequest struct {
	// Tenant is the tenant of the caller; empty for an admin.
	Tenant string
	// Tenants are the tenants that the caller may choose; nil for a caller that has only Tenant.
	Tenants []string
	// Caller is the name of the caller, and Roles are its roles.
	Caller string
	Roles  []string
	// Kind and Credential name the credential that the caller has presented. Ends is when the
	// credential ends; zero for never. The session does not outlive the credential.
	Kind, Credential string
	Ends             model.Time
	// Lifetime is how long the session lasts; 0 for DefaultLogin.
	Lifetime time.Duration
}

// LoginInfo is a session without its secret.
type LoginInfo struct {
	ID string
	// Tenant is empty for a session of an admin.
	Tenant string
	Admin  bool
	Caller string
	Roles  []string
	// Credential names the credential that the caller has presented to sign in.
	Credential       string
	Created, Expires model.Time
}

// NewLogin is a session that was just opened.
type NewLogin struct {
	LoginInfo
	// Secret is what the browser presents as a cookie. The server does not store it.
	Secret string
}

// CallerInfo describes the caller of a server, and what the caller may do.
type CallerInfo struct {
	// Name of the caller, such as a key, and the tenant that it acts in.
	Name, Tenant string
	// Admin says that the caller is an admin, for example because it has an admin key.
	Admin bool
	// Roles of the caller. They are empty if the server is of an older version.
	Roles []string
	// Actions are what the caller may do, such as execution:start.
	Actions []string
	// Tenants that the caller may choose; nil for an admin, who may choose any, and for a caller
	// that has one tenant.
	Tenants []string
	// Expires is when the key or the token ends; zero for never.
	Expires model.Time
}
