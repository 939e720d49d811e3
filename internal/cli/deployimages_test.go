package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// pinned matches an image with an exact version, or with a digest.
var pinned = regexp.MustCompile(`^[a-z0-9./_-]+(:v?\d+\.\d+(\.\d+)?[a-z0-9.-]*(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})$`)

// instruction is one instruction of a Dockerfile.
type instruction struct {
	name  string
	flags map[string]string
	args  []string
	// exec is the list of an instruction in JSON form; nil for the form of a shell.
	exec []string
}

// instructions are the names that our Dockerfiles may use. ADD is not among them: it also fetches
// URLs and unpacks archives.
var instructions = []string{"FROM", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}

// parseDockerfile reads a Dockerfile, and returns what is wrong with its form.
func parseDockerfile(text string) (all []instruction, problems []string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		in := instruction{name: words[0], flags: map[string]string{}}
		if !slices.Contains(instructions, in.name) {
			problems = append(problems, "unknown instruction "+in.name)
		}
		for words = words[1:]; len(words) > 0 && strings.HasPrefix(words[0], "--"); words = words[1:] {
			name, value, _ := strings.Cut(words[0][2:], "=")
			in.flags[name] = value
		}
		in.args = words
		if rest := strings.Join(words, " "); strings.HasPrefix(rest, "[") && json.Unmarshal([]byte(rest), &in.exec) != nil {
			problems = append(problems, in.name+" has a list that is not JSON: "+rest)
		}
		all = append(all, in)
	}
	return all, problems
}

// builtImage is what a Dockerfile makes.
type builtImage struct {
	root     string // of the build context
	stages   []string
	files    []string // in the last stage
	user     string
	ports    []string
	command  []string
	problems []string
}

func (m *builtImage) wrong(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

// readImage reads a Dockerfile whose build context is a directory.
func readImage(root, text string) *builtImage {
	m := &builtImage{root: root}
	all, problems := parseDockerfile(text)
	m.problems = problems
	for i := range all {
		m.add(&all[i])
	}

	id, _, _ := strings.Cut(m.user, ":")
	if !regexp.MustCompile(`^[1-9]\d*$`).MatchString(id) {
		m.wrong("the user is %q, must be a number other than 0", m.user)
	}
	if len(m.command) == 0 || !slices.Contains(m.files, m.command[0]) {
		m.wrong("the image starts %q, and has only %q", m.command, m.files)
	}
	return m
}

// add applies an instruction.
func (m *builtImage) add(in *instruction) {
	switch in.name {
	case "FROM":
		if name := in.args[0]; name != "scratch" && !pinned.MatchString(name) {
			m.wrong("the image %s has no exact version", name)
		}
		m.files, m.user, m.ports, m.command = nil, "", nil, nil
		if len(in.args) == 3 && in.args[1] == "AS" {
			m.stages = append(m.stages, in.args[2])
		}
	case "COPY":
		m.copy(in)
	case "RUN":
		for _, pkg := range regexp.MustCompile(`go build .* (\./\S+)`).FindAllStringSubmatch(strings.Join(in.args, " "), -1) {
			m.exists(pkg[1])
		}
	case "USER":
		m.user = in.args[0]
	case "EXPOSE":
		m.ports = in.args
	case "ENTRYPOINT", "CMD":
		if in.exec == nil {
			m.wrong("%s needs the form of a list: a shell would not pass signals on, and the image has none", in.name)
		}
		m.command = append(m.command, in.exec...)
	}
}

// copy checks the sources of a COPY, and records its target.
func (m *builtImage) copy(in *instruction) {
	sources, to := in.args[:len(in.args)-1], in.args[len(in.args)-1]
	from, staged := in.flags["from"]
	switch {
	case staged && !slices.Contains(m.stages, from):
		m.wrong("COPY from %q, which is no stage", from)
	case !staged:
		for _, source := range sources {
			m.exists(source)
		}
	}
	m.files = append(m.files, to)
}

// exists checks a path in the build context.
func (m *builtImage) exists(name string) {
	if _, err := os.Stat(filepath.Join(m.root, name)); err != nil {
		m.wrong("%s is not in the build context", name)
	}
}

// checkServe checks the arguments of perdure serve.
func checkServe(args []string) (problems []string) {
	if len(args) == 0 || args[0] != "serve" {
		return []string{fmt.Sprintf("the command is %q, must begin with serve", args)}
	}
	serve, _, err := newRoot(&options{}).Find([]string{"serve"})
	if err != nil {
		return []string{err.Error()}
	}
	for _, arg := range args[1:] {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !strings.HasPrefix(arg, "--") || serve.Flag(name) == nil {
			problems = append(problems, "serve has no "+arg)
		}
	}
	return problems
}

// The Dockerfiles have exact versions, copy what exists, start the server as a user that is not
// root, and expose the ports on which it listens.
func TestDockerfiles(t *testing.T) {
	t.Parallel()
	serve, _, err := newRoot(&options{}).Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(serve.Flag("listen").DefValue)
	if err != nil {
		t.Fatal(err)
	}
	contract, err := readContract(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	for name, ports := range map[string][]string{
		"deploy/Dockerfile": {port}, "deploy/flovyn.Dockerfile": {fmt.Sprint(contract.ServerPort), fmt.Sprint(contract.GRPCPort)},
	} {
		m := readImage("../..", readDoc(t, name))
		for _, p := range append(m.problems, checkServe(m.command[min(1, len(m.command)):])...) {
			t.Errorf("%s: %s", name, p)
		}
		if !slices.Equal(m.ports, ports) {
			t.Errorf("%s exposes %q, the server listens on %q", name, m.ports, ports)
		}
		// A published port leads to the address of the container, not to its loopback address.
		if listens := regexp.MustCompile(`--listen=(\S+)`).FindStringSubmatch(strings.Join(m.command, " ")); name == "deploy/Dockerfile" && (listens == nil || isLoopback(listens[1])) {
			t.Errorf("%s starts %q, which no published port reaches", name, m.command)
		}
	}

	ignored := strings.Split(readDoc(t, ".dockerignore"), "\n")
	for _, want := range []string{"/secrets", "/.git"} {
		if !slices.Contains(ignored, want) {
			t.Errorf(".dockerignore has no %s: the build would get it", want)
		}
	}
}

// The check of Dockerfiles finds each of these mistakes.
func TestDockerfileProblems(t *testing.T) {
	t.Parallel()
	const end = "\nUSER 1\nCOPY go.mod /x\nENTRYPOINT [\"/x\"]\n"
	for text, want := range map[string]string{
		"FROM golang:1.26.8" + end:                                         "",
		"FROM golang@sha256:" + strings.Repeat("a", 64) + end:              "",
		"FROM golang:latest" + end:                                         "no exact version",
		"FROM golang:1" + end:                                              "no exact version",
		"FROM golang" + end:                                                "no exact version",
		"FROM scratch\nADD http://x /y" + end:                              "unknown instruction ADD",
		"FROM scratch\nCOPY none /y" + end:                                 "none is not in the build context",
		"FROM scratch\nCOPY --from=other /a /y" + end:                      "which is no stage",
		"FROM scratch\nRUN go build -o x ./cmd/none" + end:                 "./cmd/none is not in the build context",
		"FROM scratch\nCOPY go.mod /x\nENTRYPOINT [\"/x\"]\n":              "must be a number other than 0",
		"FROM scratch\nUSER root\nCOPY go.mod /x\nENTRYPOINT [\"/x\"]\n":   "must be a number other than 0",
		"FROM scratch\nUSER 0:1\nCOPY go.mod /x\nENTRYPOINT [\"/x\"]\n":    "must be a number other than 0",
		"FROM scratch\nUSER 1\nENTRYPOINT [\"/x\"]\n":                      "the image starts",
		"FROM scratch\nUSER 1\nCOPY go.mod /x\nENTRYPOINT /x\n":            "needs the form of a list",
		"FROM scratch\nUSER 1\nCOPY go.mod /x\nENTRYPOINT [/x]\n":          "not JSON",
		"FROM scratch\nUSER 1\nFROM scratch\nCOPY go.mod /x\nCMD [\"/x\"]": "must be a number other than 0",
	} {
		got := strings.Join(readImage("../..", text).problems, "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q: problems %q, want %q", text, got, want)
		}
	}
}

// composeFile is a Compose file with the keys that we use. The reader refuses all other keys.
type composeFile struct {
	Services map[string]composeService `yaml:"services"`
	Volumes  map[string]struct{}       `yaml:"volumes"`
	Secrets  map[string]struct {
		File string `yaml:"file"`
	} `yaml:"secrets"`
}

type composeService struct {
	Image string `yaml:"image"`
	Build struct {
		Context    string `yaml:"context"`
		Dockerfile string `yaml:"dockerfile"`
	} `yaml:"build"`
	User        string            `yaml:"user"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Secrets     []string          `yaml:"secrets"`
	Volumes     []string          `yaml:"volumes"`
	Ports       []string          `yaml:"ports"`
	Healthcheck struct {
		Test     []string `yaml:"test"`
		Interval string   `yaml:"interval"`
		Timeout  string   `yaml:"timeout"`
		Retries  int      `yaml:"retries"`
	} `yaml:"healthcheck"`
	DependsOn map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	StopGrace   string   `yaml:"stop_grace_period"`
	Restart     string   `yaml:"restart"`
}

// readCompose reads a Compose file in a directory, and returns everything that is wrong with it.
func readCompose(dir, text string) (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	var file composeFile
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		return []string{err.Error()}
	}

	used := map[string]bool{}
	for name, s := range file.Services {
		for _, p := range s.check(dir, &file, used) {
			wrong("%s: %s", name, p)
		}
	}
	for name := range file.Secrets {
		if !used["secret "+name] {
			wrong("no service uses the secret %s", name)
		}
		if !strings.HasPrefix(file.Secrets[name].File, "../secrets/") {
			wrong("the secret %s is in %s, which .gitignore and .dockerignore do not cover", name, file.Secrets[name].File)
		}
	}
	for name := range file.Volumes {
		if !used["volume "+name] {
			wrong("no service uses the volume %s", name)
		}
	}
	server, ok := file.Services["perdure"]
	if !ok {
		return append(problems, "there is no service perdure")
	}
	return append(problems, server.checkServer(&file)...)
}

// runSecret matches the path of a secret in a container.
var runSecret = regexp.MustCompile(`/run/secrets/([a-z_]+)`)

// check returns what is wrong with a service, and records the secrets and volumes that it uses.
func (s *composeService) check(dir string, file *composeFile, used map[string]bool) (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch {
	case s.Image == "" && s.Build.Dockerfile == "":
		wrong("it has no image and no Dockerfile")
	case s.Image != "" && !pinned.MatchString(s.Image):
		wrong("the image %s has no exact version", s.Image)
	case s.Build.Dockerfile != "":
		if _, err := os.Stat(filepath.Join(dir, s.Build.Context, s.Build.Dockerfile)); err != nil {
			wrong("there is no Dockerfile: %v", err)
		}
	}

	texts := slices.Clone(s.Command)
	for _, value := range s.Environment {
		texts = append(texts, value)
	}
	for _, m := range runSecret.FindAllStringSubmatch(strings.Join(texts, " "), -1) {
		if !slices.Contains(s.Secrets, m[1]) {
			wrong("it reads %s, and does not have the secret", m[0])
		}
	}
	for _, name := range s.Secrets {
		if used["secret "+name] = true; file.Secrets[name].File == "" {
			wrong("the secret %s is not declared", name)
		}
		if !strings.Contains(strings.Join(texts, " "), "/run/secrets/"+name) {
			wrong("it does not read its secret %s", name)
		}
	}
	for _, v := range s.Volumes {
		name, at, _ := strings.Cut(v, ":")
		if used["volume "+name] = true; !path.IsAbs(at) {
			wrong("the volume %s has no path", v)
		}
		if _, ok := file.Volumes[name]; !ok {
			wrong("the volume %s is not declared", name)
		}
	}
	for name, d := range s.DependsOn {
		if other, ok := file.Services[name]; !ok || d.Condition == "service_healthy" && len(other.Healthcheck.Test) == 0 {
			wrong("it waits for %s, which does not exist or has no health check", name)
		}
	}
	return problems
}

// checkServer returns what is wrong with the service that runs perdure serve.
func (s *composeService) checkServer(file *composeFile) (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	problems = checkServe(s.Command)
	flags := map[string]string{}
	for _, arg := range s.Command {
		name, value, _ := strings.Cut(arg, "=")
		flags[name] = value
	}
	_, plain := flags["--allow-plaintext"]

	// The published port must be the port of --listen. If the server has no certificate, only this
	// machine may reach it.
	_, listens, err := net.SplitHostPort(flags["--listen"])
	if err != nil {
		wrong("--listen: %v", err)
	}
	for _, p := range s.Ports {
		parts := strings.Split(p, ":")
		if parts[len(parts)-1] != listens {
			wrong("port %s, and the server listens on %s", p, listens)
		}
		if plain && (len(parts) != 3 || parts[0] != "127.0.0.1") {
			wrong("port %s can be reached from other machines, in plain text", p)
		}
	}
	if store, err := url.Parse(flags["--store"]); err != nil || file.Services[store.Hostname()].Image == "" {
		wrong("--store %s names no service", flags["--store"])
	} else if _, has := store.User.Password(); has {
		wrong("--store has a password, which every user of the machine can see")
	}

	var environment []string
	for name := range s.Environment {
		environment = append(environment, name+"=x")
	}
	serve, _, _ := newRoot(&options{}).Find([]string{"serve"}) // checkServe has found it
	known := configurable(serve)
	for _, one := range environment {
		key, ours := strings.CutPrefix(strings.TrimSuffix(one, "=x"), variablePrefix)
		if ours && known[strings.ToLower(key)] == nil && !slices.Contains(otherVariables, variablePrefix+key) {
			wrong("serve does not read $%s%s", variablePrefix, key)
		}
	}

	if s.User == "" || strings.HasPrefix(s.User, "0") || strings.HasPrefix(s.User, "root") {
		wrong("the user is %q, must not be root", s.User)
	}
	if !s.ReadOnly || !slices.Contains(s.CapDrop, "ALL") || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
		wrong("it must be read-only, without capabilities and new privileges")
	}
	return problems
}

// The Compose file has nothing that Compose or the server would not understand.
func TestCompose(t *testing.T) {
	t.Parallel()
	text := readDoc(t, "deploy/compose.yaml")
	for _, p := range readCompose("../../deploy", text) {
		t.Error(p)
	}
	if !slices.Contains(strings.Split(readDoc(t, ".gitignore"), "\n"), "/secrets/") {
		t.Error(".gitignore does not cover the secrets")
	}
}

// The check of the Compose file finds each of these mistakes.
func TestComposeProblems(t *testing.T) {
	t.Parallel()
	text := readDoc(t, "deploy/compose.yaml")
	for _, c := range []struct{ old, now, want string }{
		{"read_only: true", "readonly: true", "field readonly not found"},
		{"read_only: true", "read_only: false", "must be read-only"},
		{"cap_drop: [ALL]", "cap_drop: []", "without capabilities"},
		{"postgres:17.6", "postgres:17", "no exact version"},
		{"postgres:17.6", "postgres", "no exact version"},
		{"127.0.0.1:7800:7800", "7800:7800", "can be reached from other machines"},
		{"127.0.0.1:7800:7800", "127.0.0.1:7800:7801", "the server listens on 7800"},
		{"--listen=:7800", "--listen=7800", "--listen: "},
		{"--log-format=json", "--logformat=json", "serve has no --logformat"},
		{"- serve\n", "- dev\n", "must begin with serve"},
		{"@postgres/", "@db/", "names no service"},
		{"perdure@postgres", "perdure:pw@postgres", "has a password"},
		{"secrets: [admin_key, pgpass]", "secrets: [admin_key]", "does not have the secret"},
		{"secrets: [admin_key, pgpass]", "secrets: [admin_key, pgpass, postgres_password]", "does not read its secret postgres_password"},
		{"file: ../secrets/pgpass", "file: ./pgpass", "do not cover"},
		{"volumes:\n  postgres: {}", "volumes:\n  other: {}", "the volume postgres is not declared"},
		{"deploy/Dockerfile\n    #", "deploy/None\n    #", "there is no Dockerfile"},
		{"      postgres:\n        condition", "      database:\n        condition", "it waits for database"},
		{`user: "${UID:-1000}:${GID:-1000}"`, `user: "0:0"`, "must not be root"},
		{"    read_only: true", "    environment: {PERDURE_LISTN: x}\n    read_only: true", "serve does not read $PERDURE_LISTN"},
		{"    read_only: true", "    environment: {PERDURE_LEASE: 30s}\n    read_only: true", ""},
	} {
		changed := strings.Replace(text, c.old, c.now, 1)
		if changed == text {
			t.Errorf("the file has no %q", c.old)
		}

		got := strings.Join(readCompose("../../deploy", changed), "; ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%q instead of %q: problems %q, want %q", c.now, c.old, got, c.want)
		}
	}
}
