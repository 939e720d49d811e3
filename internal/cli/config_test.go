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
		return o.printWhoami(&whoami{"grpc://host:7800", "prod", "acme", "/etc/prod.key", "ann"})
	},
	"config show": func(o *options) error {
		return o.printSettings([]originLine{{"listen", ":7800", "perdure.toml:3"}}, true)
	},
}
