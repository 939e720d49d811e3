package model

// DefaultTenant is the only tenant of an embedded node. Only the packages that open a node use this
// constant. All other code takes the tenant from its caller.
const DefaultTenant = "default"

// EveryTenant is what a worker of the engine itself offers instead of a tenant, to say that it
// serves all tenants. It is not the name of a tenant, so no client can offer it.
const EveryTenant = "*"

// MaxTenant is the longest name of a tenant, in bytes.
const MaxTenant = 64

// ValidTenant reports whether a text can be the name of a tenant: letters, digits, dots, dashes and
// underscores. Other characters would be ambiguous in paths, metrics and the scopes of rows.
func ValidTenant(name string) bool {
	if name == "" || len(name) > MaxTenant {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// TenantScope returns the scope of a tenant in a table that several clusters share. Rows of other
// tenants and clusters have other scopes. The scope of the default tenant is only the cluster, as
// older builds wrote it.
func TenantScope(cluster, tenant string) string {
	if tenant == DefaultTenant || cluster == "" {
		return cluster
	}
	return cluster + "/" + tenant
}
