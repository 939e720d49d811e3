package cli

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// unfit is a condition under which a server must refuse to start. row is its row in the list of
// refusals in docs/architecture.md.
type unfit struct {
	row  int
	what string
	// store is the URL of the store in the configuration file. Empty means memory:.
	store string
	// more are further lines of the configuration file.
	more string
	// env has further variables of the environment, as name=value.
	env []string
	// args are further arguments of perdure serve.
	args []string
	// command has all arguments, if the command is not perdure serve.
	command []string
	// change makes the start fail in a way that a test cannot cause from outside. A server with
	// change runs in the process of the test.
	change func(*options)
	// want is a text that the error must contain, and next is the advice that it must give.
	want, next string
}

// settled is a condition that cannot happen with this server, with the reason.
type settled struct {
	row       int
	what, why string
}

// cannotHappen lists the conditions that have no refusal, because no setting can cause them.
// docs/architecture.md explains them.
var cannotHappen = []settled{
	{5, "no key of the worker tokens", "tokens have 260 random bits and the store has their digests, so there is no such key; the admin key is checked like one"},
	{9, "a migration that ended half-way", "a migration and its record commit in one transaction"},
	{12, "a lease of less than three renewals", "the interval of renewals is a part of the lease"},
	{13, "a node id that a live process has", "a process draws its id when it starts, and stores it nowhere: TestCopiedConfiguration"},
	{19, "no limit of memory in a container", "the server sets it: TestMemoryLimit"},
}

// lastRow is the last row of the list of refusals.
const lastRow = 20

// A server refuses to start under every condition on the list of refusals. It prints a sentence
// that says what is wrong and what to do, and has the same exit code for all conditions. The test
// covers every row of the list.
func TestServeRefusesToStart(t *testing.T) {
	t.Parallel()
	all := slices.Concat(unfitSettings(t), unfitMachines(t), unfitFiles(t), unfitDatabases(t))
	rows := map[int]bool{}
	for _, s := range cannotHappen {
		rows[s.row] = true
	}
	for _, u := range all {
		rows[u.row] = true
	}
	for row := 1; row <= lastRow; row++ {
		if !rows[row] {
			t.Errorf("no entry for row %d", row)
		}
	}

	for _, u := range all {
		t.Run(u.what, func(t *testing.T) {
			t.Parallel()
			code, complaint := u.try(t)
			if code != exitRefused || !strings.Contains(complaint, u.want) || !strings.Contains(complaint, u.next) {
				t.Errorf("row %d: exit %d, want %d, %q and %q:\n%s", u.row, code, exitRefused, u.want, u.next, complaint)
			}
			if strings.Contains(complaint, "canary") || strings.Contains(complaint, serveKey) {
				t.Errorf("row %d: the complaint has a secret:\n%s", u.row, complaint)
			}
		})
	}
}

// try starts the server, and returns its exit code and its complaint on one line.
func (u *unfit) try(t *testing.T) (code int, complaint string) {
	t.Helper()
	dir := t.TempDir()
	store := u.store
	if store == "" {
		store = "memory:"
	}
	config := writeFile(t, dir, "perdure.toml", "store = '"+store+"'\n"+u.more+"\n")
	args := append([]string{"--config", config, "--listen", "127.0.0.1:0", "--admin-key-file", writeFile(t, dir, "key", serveKey), "--store-wait", "1s"}, u.args...)
	if u.change != nil {
		return refused(t.Context(), u.change, args...)
	}
	args = append([]string{"serve"}, args...)
	if u.command != nil {
		args = u.command
	}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "perdure", args...)
	var text bytes.Buffer
	cmd.Stderr, cmd.Dir = &text, dir
	cmd.Env = append(ownEnvironment(), u.env...)
	err := cmd.Run()
	if exited := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), strings.Join(strings.Fields(text.String()), " ")
}

// ownEnvironment returns the environment of the test, without the variables that change how a
// server starts.
func ownEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(one string) bool {
		name, _, _ := strings.Cut(strings.ToUpper(one), "=")
		return strings.HasSuffix(name, "_PROXY") || strings.HasPrefix(name, "OTEL_") || name == "PERDURE_STORE" || name == adminKeyVariable
	})
}

// unfitSettings are settings that are invalid or not safe.
func unfitSettings(t *testing.T) []unfit {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string { return writeFile(t, dir, name, text) }
	jwks := file("keys.json", `{"keys":[]}`)
	shownKey := openFile(t, dir, "shown.key", serveKey)
	cert, _, _ := certificate(t, t.TempDir())
	oldCert, oldKey, _ := certificateUntil(t, t.TempDir(), time.Now().Add(-time.Minute))
	tokens := func(more ...string) []string {
		return append([]string{"--jwt-keys", jwks, "--jwt-issuer", "i", "--jwt-audience", "a"}, more...)
	}
	key := func(text string) []string {
		return []string{"--admin-key-file", file("key"+text[:min(4, len(text))], text)}
	}
	unknown := func(row int, name, value string) unfit {
		return unfit{row: row, what: "unknown key " + name, more: name + " = " + value, want: `unknown key "` + name + `"`, next: "("}
	}

	return []unfit{
		{row: 1, what: "signatures skipped by the environment", env: []string{"JWT_SKIP_SIGNATURE_VERIFICATION=true"}, want: "$JWT_SKIP_SIGNATURE_VERIFICATION is set", next: "unset it"},
		unknown(1, "jwt_skip_verification", "true"),
		{row: 1, what: "signatures skipped in production", env: []string{"JWT_SKIP_SIGNATURE_VERIFICATION=true"}, args: []string{"--flovyn-contract", "--production"}, want: "signatures of tokens are not verified", next: "remove skip_verification"},

		unknown(2, "security_enabled", "false"),
		{row: 2, what: "dev for other machines", command: []string{"dev", "--store", "memory:", "--listen", "0.0.0.0:0"}, want: "it listens on loopback only", next: "use perdure serve"},
		{row: 2, what: "no authentication in production", env: []string{"FLOVYN_SECURITY_ENABLED=false"}, args: []string{"--flovyn-contract", "--production"}, want: "authentication is off", next: "remove FLOVYN_SECURITY_ENABLED=false"},

		{row: 3, what: "no keys of tokens", args: []string{"--jwt-audience", "a"}, want: "need --jwt-issuer", next: "--jwt-issuer"},
		{row: 3, what: "a key set without keys", args: tokens(), want: "no key with an id (kid) for signatures", next: "--jwt-keys"},
		{row: 3, what: "no issuer", args: []string{"--jwt-keys", jwks, "--jwt-audience", "a"}, want: "tokens need an issuer", next: ""},
		{row: 3, what: "no audience", args: []string{"--jwt-keys", jwks, "--jwt-issuer", "i"}, want: "tokens need an audience", next: ""},
		{row: 3, what: "no algorithm", args: tokens("--jwt-algorithms", ""), want: "--jwt-algorithms names no algorithm", next: ""},
		{row: 3, what: "the algorithm none", args: tokens("--jwt-algorithms", "none"), want: "is not an algorithm for tokens", next: ""},
		{row: 3, what: "a shared secret as the algorithm", args: tokens("--jwt-algorithms", "RS256,HS256"), want: "is not an algorithm for tokens", next: ""},

		{row: 4, what: "a key set without https", args: []string{"--jwt-keys", "http://id.example/keys", "--jwt-issuer", "i", "--jwt-audience", "a"}, want: "must use https", next: ""},
		{row: 4, what: "a key set that cannot be fetched", args: []string{"--jwt-keys", "https://127.0.0.1:1/keys", "--jwt-issuer", "i", "--jwt-audience", "a"}, want: "read the key set", next: "--jwt-keys"},

		{row: 5, what: "no admin key", args: key("\n"), want: "the server has no admin key", next: "--admin-key-file"},
		{row: 5, what: "a short admin key", args: key("canary"), want: "has 6 bytes, must be >= 16", next: "openssl rand -hex 32"},
		{row: 5, what: "an admin key of equal bytes", args: key(strings.Repeat("a", 64)), want: "has 1 different bytes", next: "openssl rand -hex 32"},
		{row: 5, what: "an admin key of an example", args: key("change-me-0123456789"), want: `has the word "changeme"`, next: "openssl rand -hex 32"},

		{row: 6, what: "no certificate", args: []string{"--listen", "0.0.0.0:0"}, want: "can be reached from other machines, and there is no certificate", next: "--allow-plaintext"},
		{row: 6, what: "a private key that all can read", args: []string{"--tls-cert", cert, "--tls-key", shownKey}, want: "can read the private key", next: "chmod 600"},
		{row: 6, what: "an expired certificate", args: []string{"--tls-cert", oldCert, "--tls-key", oldKey}, want: "has expired at", next: ""},

		{row: 7, what: "a stream without an action", change: func(o *options) { o.services = unlisted }, want: "has no row for /perdure.test.Unlisted/Watch", next: "use another one"},
		{row: 7, what: "a policy that cannot be read", args: []string{"--policies", file("a.cedar", "permit (")}, want: "a.cedar: parser error", next: ""},
		{row: 7, what: "a policy that is not valid", args: []string{"--policies", file("b.cedar", `permit (principal, action == Action::"execution:fly", resource);`)}, want: "b.cedar:1: policy policy1", next: ""},
		{row: 7, what: "no policy", args: []string{"--policies", file("c.cedar", "")}, want: "has no policy", next: ""},

		{row: 15, what: "a cluster on a file", store: "file:a.db", args: []string{"--peer-listen", ":0", "--groups", "default,gpu"}, want: "--groups, --peer-listen: only one server can use the store", next: "use a PostgreSQL store"},

		unknown(16, "pprof", "true"),
		unknown(16, "reflection", "true"),
		unknown(16, "failpoints", "'x'"),
		unknown(16, "test_clock", "true"),
		{row: 16, what: "profiles for other machines", args: []string{"--admin-listen", "0.0.0.0:0"}, want: "--admin-listen 0.0.0.0:0 can be reached from other machines", next: "listen on 127.0.0.1"},

		unknown(17, "cors_origins", "'*'"),
		unknown(17, "console", "true"),
		unknown(18, "webhooks", "true"),
		{
			row: 18, what: "a proxy for keys", env: []string{"HTTPS_PROXY=http://canary:canary@proxy.example:3128"}, args: []string{"--jwt-issuer", "https://id.example", "--jwt-audience", "a"},
			want: "the environment has a proxy, proxy.example:3128, for requests of this server to id.example", next: "set --use-proxy",
		},
		{row: 18, what: "a proxy for spans", env: []string{"HTTP_PROXY=http://proxy.example:3128", "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector.example:4318"}, want: "to collector.example:4318", next: "$NO_PROXY"},

		{row: 19, what: "an audit log without a limit", args: []string{"--production", "--retain-audit", "0"}, want: "--retain-audit is 0", next: "give a time"},
		{row: 19, what: "any number of connections", args: []string{"--production", "--max-connections", "0"}, want: "--max-connections is 0", next: "give a number"},
		{row: 19, what: "any number of calls", args: []string{"--production", "--call-rate", "0"}, want: "--call-rate is 0", next: "give a number"},
		unknown(19, "max_recv_msg_size", "0"),

		{row: 20, what: "a password among the arguments", args: []string{"--production", "--store", "postgres://app:canary@127.0.0.1:1/app"}, want: "--store has a password", next: "use $PERDURE_STORE"},
		{row: 20, what: "a password of NATS among the arguments", args: []string{"--production", "--nats", "nats://u:canary@127.0.0.1:1"}, want: "--nats has a password", next: "use $PERDURE_NATS"},
		{row: 20, what: "a configuration with a password that a group can read", args: []string{"--config", withMode(t, file("group.toml", "store = 'postgres://app:canary@127.0.0.1:1/app'"), 0o640)}, want: "other users of this machine can read the password", next: "chmod 600"},
		{row: 20, what: "a configuration with a password that all can read", args: []string{"--config", withMode(t, file("all.toml", "store = 'postgres://app:canary@127.0.0.1:1/app'"), 0o604)}, want: "other users of this machine can read the password", next: "chmod 600"},
		{row: 20, what: "a misspelt key", more: "drain_timeuot = '1s'", want: `perdure.toml:2: unknown key "drain_timeuot"`, next: "did you mean drain_timeout?"},
		{row: 20, what: "a misspelt variable", env: []string{"PERDURE_DRAIN_TIMEUOT=1s"}, want: "unknown variable $PERDURE_DRAIN_TIMEUOT", next: "did you mean $PERDURE_DRAIN_TIMEOUT?"},
	}
}

// unlisted is a service with a stream that has no row in the table of actions.
func unlisted(to grpc.ServiceRegistrar) {
	to.RegisterService(&grpc.ServiceDesc{ServiceName: "perdure.test.Unlisted", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "Watch", ServerStreams: true, Handler: func(any, grpc.ServerStream) error { return nil },
	}}}, nil)
}

// withMode changes the mode of a file.
func withMode(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// unfitMachines are machines that a server cannot run on.
func unfitMachines(t *testing.T) []unfit {
	t.Helper()
	few := func(o *options) { o.machine.openFiles = func() (uint64, bool) { return 1024, true } }
	return []unfit{{row: 19, what: "few open files", change: few, want: "may have 1024 files and connections open", next: "raise the limit"}}
}

// unfitFiles are files that a server cannot use as its store.
func unfitFiles(t *testing.T) []unfit {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string { return writeFile(t, dir, name, text) }
	used := filepath.Join(dir, "used.db")
	startServe(t, "--store", "file:"+used, "--listen", "127.0.0.1:0", "--admin-key-file", file("key", serveKey))
	shared := filepath.Join(dir, "shared")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	withMode(t, shared, 0o777)
	nfs := func(o *options) { o.machine.fileSystem = func(string) string { return "NFS" } }

	all := []unfit{
		{row: 14, what: "a file in use", store: "file:" + used, want: "is in use by another process", next: "stop that process"},
		{row: 14, what: "a file that all can write", store: "file:" + openFile(t, dir, "open.db", ""), want: "all users of this machine can write", next: "chmod 600"},
		{row: 14, what: "a directory that all can write", store: "file:" + filepath.Join(shared, "a.db"), want: "all users of this machine can replace files in", next: "chmod o-w"},
		{row: 14, what: "a file that cannot be written", store: "file:" + readOnlyFile(t, dir, "fixed.db"), want: "permission denied", next: "make the file and its directory writable"},
		{row: 14, what: "a network file system", store: "file:" + filepath.Join(dir, "net.db"), change: nfs, want: "is on the network file system NFS", next: "use a local disk"},
		{row: 14, what: "a file of another kind", store: "file:" + file("text.db", strings.Repeat("text ", 1000)), want: "is not an SQLite file", next: "name another file"},
		{row: 14, what: "a damaged file", store: "file:" + file("damaged.db", "SQLite format 3\x00"+strings.Repeat("text ", 1000)), want: "damaged.db", next: ""},
		{row: 14, what: "a log without its file", store: "file:" + withLog(t, filepath.Join(dir, "lost.db")), want: "is empty or missing, but its log", next: "restore both from a backup"},
	}
	if os.Geteuid() == 0 { // only root can create a file of another user
		foreign := file("foreign.db", "")
		if err := os.Chown(foreign, 4321, -1); err != nil {
			t.Fatal(err)
		}
		all = append(all, unfit{row: 14, what: "a file of another user", store: "file:" + foreign, want: "belongs to user 4321", next: "run the server as that user"})
	}
	return all
}

// withLog writes the write-ahead log of a file that does not exist, and returns the path of that
// file.
func withLog(t *testing.T, path string) string {
	t.Helper()
	writeFile(t, filepath.Dir(path), filepath.Base(path)+"-wal", "log")
	return path
}

// A problem that may go away by itself is not a refusal. Its exit code says that a restart may
// help.
func TestServeThatMayStartLater(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, u := range []unfit{
		{what: "an address that is taken", args: []string{"--listen", taken.Addr().String()}, want: "address already in use"},
		{what: "a database that does not answer", store: "postgres://127.0.0.1:1/none?connect_timeout=1", want: "the database has not answered"},
	} {
		code, complaint := u.try(t)
		if code != 5 || !strings.Contains(complaint, u.want) || u.store == "" && strings.Contains(complaint, "database") {
			t.Errorf("%s: exit %d: %s", u.what, code, complaint)
		}
	}
}

// A server starts even if the environment has variables of other programs whose names begin like
// settings. It also starts with a proxy that the operator has confirmed, or that does not apply to
// its requests.
func TestServeStartsInAnyEnvironment(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{
		{"PERDURE_SERVICE_HOST=10.0.0.1", "PERDURE_PORT=tcp://10.0.0.1:7800", "PERDURE_PORT_7800_TCP_ADDR=10.0.0.1", "PERDURE_API_SERVICE_PORT_GRPC=7800", "PERDURE_TEST_X=1", "PERDURE_BIN=/bin/perdure", "PERDURE_URL=http://127.0.0.1:1"},
		{"HTTPS_PROXY=http://proxy.example:3128"},
		{"HTTP_PROXY=http://proxy.example:3128", "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector.example:4318", "NO_PROXY=collector.example"},
		{"HTTP_PROXY=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector.example:4318", "PERDURE_USE_PROXY=true"},
	} {
		// The server fails only when it opens its store, which shows that it has accepted
		// everything else.
		u := unfit{env: env, store: "postgres://127.0.0.1:1/none?connect_timeout=1"}
		if code, complaint := u.try(t); code != 5 || !strings.Contains(complaint, "the database has not answered") {
			t.Errorf("%v: exit %d: %s", env, code, complaint)
		}
	}
}
