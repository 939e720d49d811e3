package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"sync"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authz/policy"
	"github.com/perdure/perdure/internal/fault"
)

// policyFile is the file of policies. The server reads it again when the file changes, and when the
// server gets SIGHUP. If the new policies cannot be used, the old ones stay in use, and the health
// of the server says so.
type policyFile struct {
	*policy.Policies

	file string // empty for the default policies
	log  *slog.Logger

	mu      sync.Mutex
	text    []byte // the text of the policies in use
	refused []byte // the last text that could not be used
	problem string // why it could not be used; empty if the policies of the file are in use
}

// readPolicyFile reads the policies of a server.
func readPolicyFile(file string, log *slog.Logger) (*policyFile, error) {
	p := &policyFile{file: file, log: log}
	var err error
	if file == "" {
		p.Policies, err = policy.Default()
		return p, err
	}
	if p.text, err = os.ReadFile(file); err != nil {
		return nil, fault.New(fault.Invalid, "read the policies: %w", err)
	}
	p.Policies, err = policy.Parse(file, p.text)
	return p, err
}

// problems returns why the policies of the file are not used.
func (p *policyFile) problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem == "" {
		return nil
	}
	return []string{p.problem}
}

// reload reads the file and uses it if it has changed. It reads the text instead of comparing
// times, because two changes can have the same time.
func (p *policyFile) reload(ctx context.Context, r reloading) {
	if p.file == "" {
		return
	}
	text, err := os.ReadFile(p.file)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil && bytes.Equal(text, p.text):
		if p.problem != "" {
			p.log.Info("the file of policies is again the one in use", "file", p.file)
		}
		p.problem, p.refused = "", nil
		return
	case err == nil && p.refused != nil && bytes.Equal(text, p.refused):
		return // the log already has this problem
	case err == nil:
		err = p.Replace(p.file, text)
	}

	if err != nil {
		problem := "the policies in " + p.file + " cannot be used, so the former ones stay: " + err.Error()
		if problem != p.problem {
			p.log.Error("the policies cannot be used; the former ones stay", "file", p.file, "error", err)
			p.note(ctx, r.note, text, err)
		}
		p.problem, p.refused = problem, text
		return
	}
	p.log.Info("the policies were read again", "file", p.file)
	p.note(ctx, r.note, text, nil)
	p.text, p.problem, p.refused = text, "", nil
}

// note records a change of the policies, or a failed attempt to change them, with the digests of
// the texts.
func (p *policyFile) note(ctx context.Context, note noteFunc, text []byte, failed error) {
	e := api.AuditEntry{
		Caller: "server", Door: "file", Action: "policy:reload", Call: "ReloadPolicies", Resource: "policies " + p.file, Outcome: api.AuditDone,
		Before: digest(p.text), After: digest(text),
	}
	if failed != nil {
		e.Outcome, e.Error = api.AuditFailed, failed.Error()
	}
	if err := note(ctx, e); err != nil {
		p.log.Error("the audit log has no entry for the change of policies", "error", err)
	}
}

// digest returns the digest of a text as JSON. It returns nil if there is no text.
func digest(text []byte) []byte {
	if text == nil {
		return nil
	}
	sum := sha256.Sum256(text)
	return []byte(`"sha256:` + hex.EncodeToString(sum[:]) + `"`)
}
