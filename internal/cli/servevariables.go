package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/deploy"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/spelling"
)

// variablePrefix is the prefix of the environment variables that belong to perdure. It also reads
// variables of other programs, such as $OTEL_EXPORTER_OTLP_ENDPOINT.
const variablePrefix = "PERDURE_"

// otherVariables are variables that commands read and that are not settings of a server.
var otherVariables = []string{
	configVariable, adminKeyVariable, serverVariable, tokenVariable, tokenFileVariable, caVariable, profileVariable, profilesVariable,
	"PERDURE_TENANT", deploy.Env,
}

// foreignVariables matches variables with this prefix that are not settings. Kubernetes sets some
// for a service with the name perdure, and the tests and benchmarks of Perdure use some.
var foreignVariables = regexp.MustCompile(`^PERDURE_(([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)|(TEST|CHAOS|BENCH)_[A-Z0-9_]+)$`)

// longVariable is the length of the longest name that may be a setting.
const longVariable = 100

// nearVariable is how many characters of a misspelt setting may be wrong or missing. These
// characters must also be fewer than half of the name.
const nearVariable = 2

// checkVariables refuses variables of the environment that are misspelt settings, because such a
// setting would silently keep its default. known are the keys of all settings. checkVariables
// ignores a variable that is not similar to any setting: it belongs to another program, for example
// to the script that starts the server.
func checkVariables(environment, known []string) (problems []error) {
	names := slices.Clone(otherVariables)
	for _, key := range known {
		names = append(names, variablePrefix+strings.ToUpper(key))
	}
	slices.Sort(names)
	slices.Sort(environment)

	for _, one := range environment {
		name, _, _ := strings.Cut(one, "=")
		if !strings.HasPrefix(name, variablePrefix) || len(name) > longVariable || slices.Contains(names, name) || foreignVariables.MatchString(name) {
			continue
		}
		meant := spelling.Nearest(name, names)
		if wrong := spelling.Distance(name, meant); wrong <= nearVariable && 2*wrong < len(name)-len(variablePrefix) {
			err := fault.New(fault.Invalid, "unknown variable $%s", name)
			problems = append(problems, fault.WithHint(err, "did you mean $%s? unset it otherwise", meant))
		}
	}
	return problems
}
