package cli

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/remote"
)

// serveParts are the checked settings and files of the flags of serve.
type serveParts struct {
	log      *slog.Logger
	level    *slog.LevelVar // the level of the log
	secure   *tls.Config    // nil for plain text
	certs    *certificates  // nil for plain text
	policies *policyFile
	ring     *authn.Keyring
	tokens   *tokenKeys // nil without tokens
	// stop ends the background work, which reads the key set of the identity provider again.
	stop func()
}

// checkServe reads everything that the flags name, and reports all problems in one error. If a
// value of the configuration file is wrong, the error names its line. checkServe makes requests to
// other machines only if it has found no problem on this one.
func (o *options) checkServe(ctx context.Context, f *serveFlags) (*serveParts, error) {
	problems := slices.Clone(f.problems)
	add := func(key string, err error) {
		if err = f.from.problem(key, err); err != nil {
			problems = append(problems, err)
		}
	}

	p := &serveParts{}
	o.checkEveryServer(f, p, o.store, add)
	add("", checkSignatures(os.Getenv))
	listen := checkListen("--listen", f.listen)
	add("listen", listen)
	auth, err := adminAuth(f.keyFile)
	add("admin_key_file", err)
	if listen == nil && p.log != nil {
		p.secure, p.certs, err = f.tls(p.log)
		add("tls_cert", err)
	}
	if err := joinProblems(problems); err != nil {
		return nil, err
	}

	p.ring = authn.NewKeyring(auth)
	if p.tokens, p.stop, err = f.tokens.accept(ctx, p.ring, p.log); err != nil {
		return nil, f.from.problem(f.tokens.setting(), err)
	}
	f.reloads = p.reloader(f)
	return p, nil
}

// reloader returns the reloader that reads the parts of the server again while it runs.
func (p *serveParts) reloader(f *serveFlags) *reloader {
	r := &reloader{log: p.log, parts: []reloadPart{p.policies}}
	if file := configFile(f.config); file != "" {
		r.parts = append(r.parts, &configurationFile{file: file, command: f.command, from: f.from, level: p.level, log: p.log})
	}
	if p.certs != nil {
		r.parts = append(r.parts, p.certs)
	}
	if p.tokens != nil {
		r.parts = append(r.parts, p.tokens)
	}
	if f.keyFile != "" && p.ring != nil {
		r.parts = append(r.parts, &adminKeyFile{file: f.keyFile, ring: p.ring, log: p.log})
	}
	return r
}

// checkEveryServer makes the checks that are the same for every kind of server configuration.
func (o *options) checkEveryServer(f *serveFlags, p *serveParts, url string, add func(key string, err error)) {
	if remote.IsURL(url) {
		add("store", fault.New(fault.Invalid, "--store is the URL of a server; serve needs that of a store, such as postgres://host/database"))
	}

	var err error
	p.log, p.level, err = o.serverLog(f.logs)
	add("log_format", err)
	if p.log != nil {
		add("store", f.checkPassword(url, p.log))
		add("databases", f.checkDatabasePasswords(o.databaseURLs(), p.log))
	}

	p.policies, err = readPolicyFile(f.policies, p.log)
	add("policies", err)
	add("", o.machine.checkFiles())
	if f.accessLog < 0 {
		add("access_log", fault.New(fault.Invalid, "--access-log is %d, must be >= 0", f.accessLog))
	}
	for _, l := range f.limits() {
		add(l.key, f.checkLimit(l))
	}
	add("nats", f.checkNATS())
	add("use_proxy", o.machine.checkProxies(f))
	if f.adminListen != "" {
		add("admin_listen", f.checkAdminListen())
	}
}

// checkSignatures refuses variables that ask the server not to check the signatures of tokens. Only
// the Flovyn contract has such a switch. Without this check, an operator could believe that this
// server has the switch too.
func checkSignatures(getenv func(string) string) error {
	for _, name := range skipVariables {
		if text := getenv(name); text != "" && !isFalse(text) {
			return fault.WithHint(fault.New(fault.Invalid, "$%s is set, and this server verifies every signature", name),
				"unset it; only --flovyn-contract has this switch, for tests")
		}
	}
	return nil
}

// bound is a limit of a server that 0 switches off.
type bound struct {
	key   string
	value int64
	next  string // what to do about 0 in production
}

// limits returns the limits of the server that 0 switches off.
func (f *serveFlags) limits() []bound {
	return []bound{
		{"retain_audit", int64(f.retainAudit), "give a time, such as 87600h for ten years"},
		{"max_connections", int64(f.connections), "give a number, such as 50000"},
		{"call_rate", int64(f.callRate), "give a number, such as 50000"},
	}
}

// checkLimit refuses a limit that makes no sense, and in production also a limit that is switched
// off.
func (f *serveFlags) checkLimit(l bound) error {
	flag := "--" + strings.ReplaceAll(l.key, "_", "-")
	switch {
	case l.value < 0:
		return fault.New(fault.Invalid, "%s is %d, must be >= 0", flag, l.value)
	case l.value == 0 && f.production:
		return fault.WithHint(fault.New(fault.Invalid, "%s is 0, so there is no limit, and --production is set", flag), "%s", l.next)
	}
	return nil
}

// checkNATS refuses settings of NATS that cannot work. It also refuses a password that other users
// can read: in a configuration file with the wrong mode, and in production also on the command
// line.
func (f *serveFlags) checkNATS() error {
	if f.nats.URL == "" {
		if f.nats.Credentials != "" {
			return fault.New(fault.Invalid, "--nats-credentials needs --nats")
		}
		return nil
	}
	if err := f.nats.Check(); err != nil {
		return err
	}
	switch secret := slices.ContainsFunc(strings.Split(f.nats.URL, ","), hasPassword); {
	case secret && f.production && f.from["nats"] == flagOrigin:
		return fault.WithHint(fault.New(fault.Invalid, "--nats has a password, and other users of this machine can read the arguments of a process"),
			"use $PERDURE_NATS or --nats-credentials")
	case secret && f.from.file("nats"):
		return checkOwnerReads("the password of NATS", configFile(f.config))
	}
	return nil
}

// checkAdminListen refuses an address for profiles that is wrong, or that other machines can reach
// in plain text.
func (f *serveFlags) checkAdminListen() error {
	if err := checkListen("--admin-listen", f.adminListen); err != nil {
		return err
	}
	if f.cert == "" && !f.plain && !isLoopback(f.adminListen) {
		return fault.WithHint(fault.New(fault.Invalid, "--admin-listen %s can be reached from other machines, and there is no certificate", f.adminListen),
			"listen on 127.0.0.1, or give --tls-cert and --tls-key")
	}
	return nil
}
