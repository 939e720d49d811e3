package cli

// someProfiles has every field of a profile.
var someProfiles = &profiles{Current: "prod", Named: map[string]profile{
	"prod": {Server: "grpc://host:7800", Tenant: "acme", CA: "/ca.pem", KeyFile: "/key"},
	"ci":   {Server: "grpc://host:7800", KeyEnv: "CI_KEY"},
	"here": {Store: "postgres://ann:hidden@db/app"},
}}

// configPrinters print the output of the commands about profiles.
var configPrinters = map[string]func(o *options) error{
	"config set":    func(o *options) error { return o.printProfile(someProfiles, "prod", "set") },
	"config use":    func(o *options) error { return o.printProfile(someProfiles, "ci", "using") },
	"config remove": func(o *options) error { return o.printProfile(someProfiles, "here", "removed") },
	"config list":   func(o *options) error { return o.printProfiles(someProfiles) },
	"whoami": func(o *options) error {
		return o.printWhoami(&whoami{
			URL: "grpc://host:7800", Profile: "prod", Tenant: "acme", Key: "/etc/prod.key", User: "ann", Caller: "key k3v9x2m7q1ab", Admin: true, Roles: []string{"reader", "support"},
			Actions: []string{"server:describe", "login:create", "login:show", "login:leave", "execution:cancel"}, Tenants: []string{"acme", "beta"}, Expires: when(noon),
		})
	},
	"login": func(o *options) error {
		return o.printLogin(&loginShape{"prod", "grpc://host:7800", "acme", "key k3v9x2m7q1ab", []string{"reader"}, when(noon), "/home/ann/.config/perdure/keys/prod.key"})
	},
	"logout": func(o *options) error { return o.printProfile(someProfiles, "ci", "logged out:") },
	"config show": func(o *options) error {
		return o.printSettings([]originLine{{"listen", ":7800", "perdure.toml:3"}}, true)
	},
}
