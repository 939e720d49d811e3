package mutants

// admin are bugs in keys, tenants and settings of a server.
var admin = []mutant{
	{
		name:  "a revoked key still serves calls that wait",
		file:  "internal/authn/keyring.go",
		old:   "		gone.end(why)\n",
		new:   "		_, _ = gone, why\n",
		tests: [][]string{{"./internal/authn", "-run", "TestKeyring$"}},
	},
	{
		name:  "a stream outlives the key of its worker",
		file:  "internal/grpcapi/intercept.go",
		old:   "info.FullMethod, true, func(",
		new:   "info.FullMethod, false, func(",
		tests: [][]string{{"./internal/node", "-run", "TestTenantsAndKeys$"}},
	},
	{
		name:  "any secret with a known id is accepted",
		file:  "internal/authn/keyring.go",
		old:   "	if subtle.ConstantTimeCompare(sum[:], c.key.Sum) != 1 {\n",
		new:   "	if subtle.ConstantTimeCompare(sum[:], c.key.Sum) > 1 {\n",
		tests: [][]string{{"./internal/authn", "-run", "TestKeyring$"}},
	},
	{
		name:  "the key of a tenant opens the admin service",
		file:  "internal/grpcapi/caller.go",
		old:   "	if c, _ := CallerOf(ctx); !c.Admin {\n",
		new:   "	if c, _ := CallerOf(ctx); c.Tenant == \"\" {\n",
		tests: [][]string{{"./internal/node", "-run", "TestTenantsAndKeys$"}},
	},
	{
		name:  "a tenant raises its own allowance",
		file:  "internal/grpcapi/caller.go",
		old:   "\"/perdure.v1.ClientService/SetAllowance\": true",
		new:   "\"/perdure.v1.ClientService/SetAllowance\": false",
		tests: [][]string{{"./internal/node", "-run", "TestTenantsAndKeys$"}},
	},
	{
		name:  "a setting of another version is replaced",
		file:  "internal/engine/flow/settings.go",
		old:   "want != nil && *want != present",
		new:   "want != nil && *want > present",
		tests: [][]string{{"./internal/engine/flow", "-run", "TestSettingVersions$"}},
	},
	{
		name:  "a follower of settings misses changes of other nodes",
		file:  "internal/engine/flow/flow.go",
		old:   "	f.tellFollowers(changed)\n	if tenants",
		new:   "	if tenants",
		tests: [][]string{{"./internal/engine/flow", "-run", "TestFollow$"}},
	},
	{
		name:  "a worker that drains starts new bodies",
		file:  "internal/remote/drain.go",
		old:   "		d.Drain()\n",
		new:   "		_ = d.Drain\n",
		tests: [][]string{{"./internal/node", "-run", "TestDrain$"}},
	},
	{
		name:  "a worker does not go on after it has drained",
		file:  "internal/remote/drain.go",
		old:   "		d.Resume()\n",
		new:   "		_ = d.Resume\n",
		tests: [][]string{{"./internal/node", "-run", "TestDrain$"}},
	},
	{
		name:  "a worker that has drained comes back to the same server",
		file:  "internal/remote/drain.go",
		old:   "		w.servers.leave(server.Addr)\n",
		new:   "		_ = server\n",
		tests: [][]string{{"./internal/node", "-run", "TestDrainMoves$"}},
	},
}
