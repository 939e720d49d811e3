package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
)

// An owner and an auditor see what was done in their tenant, by which caller and through which
// door. Other callers see nothing. Entries survive a restart.
func TestAuditOverTheWire(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, err := o.admin.CreateTenant(o.ctx, api.TenantChange{Name: "acme"})
	o.must(err)
	_, err = o.admin.CreateTenant(o.ctx, api.TenantChange{Name: "other"})
	o.must(err)
	key := func(tenant string, roles ...string) api.NewKey {
		t.Helper()
		k, err := o.admin.CreateKey(o.ctx, api.KeyRequest{Tenant: tenant, Roles: roles})
		o.must(err)
		return k
	}
	owner, auditor, reader, stranger := key("acme"), key("acme", "auditor"), key("acme", "reader"), key("other")

	acme := o.dial(owner.Secret, "")
	o.must(acme.PauseQueue(o.ctx, "acme", "mails", "the bank is closed"))
	read := o.dial(reader.Secret, "")
	o.refused("a reader pauses", read.PauseQueue(o.ctx, "acme", "mails", ""), fault.Denied)

	// The refusal is written in the background.
	list := func(token string) []api.AuditEntry {
		t.Helper()
		page, err := o.dial(token, "").Admin().Audit(o.ctx, api.AuditRequest{})
		o.must(err)
		return page.Entries
	}
	for !slices.ContainsFunc(list(owner.Secret), func(e api.AuditEntry) bool { return e.Outcome == api.AuditDenied }) {
		select {
		case <-o.ctx.Done():
			t.Fatal("the refusal is not recorded")
		case <-time.After(time.Millisecond):
		}
	}

	want := []string{"PauseQueue", "CreateKey", "CreateKey", "CreateKey", "CreateTenant"}
	check := func(who, token string) {
		t.Helper()
		var calls []string
		for _, e := range list(token) {
			if e.Tenant != "acme" {
				t.Errorf("%s sees %+v", who, e)
			}
			if e.Outcome == api.AuditDenied {
				if e.Caller == "" || e.Action != "queue:pause" || e.Door != "grpc" {
					t.Errorf("refused: %+v", e)
				}
				continue
			}
			calls = append(calls, e.Call)
			if e.Call == "PauseQueue" && (e.Reason != "the bank is closed" || e.Resource != "queue mails" || e.From == "" || e.Outcome != api.AuditDone ||
				string(e.Before) != `{"paused":false}` || string(e.After) != `{"paused":true}`) {
				t.Errorf("paused: %+v", e)
			}
		}
		if !slices.Equal(calls, want) {
			t.Errorf("%s sees %v, want %v", who, calls, want)
		}
	}
	check("the owner", owner.Secret)
	check("the auditor", auditor.Secret)
	_, err = read.Admin().Audit(o.ctx, api.AuditRequest{})
	o.refused("a reader reads", err, fault.Denied)
	_, err = o.dial(stranger.Secret, "").Admin().Audit(o.ctx, api.AuditRequest{Tenant: "acme"})
	o.refused("a stranger reads", err, fault.Denied)
	for _, e := range list(stranger.Secret) {
		if e.Tenant != "other" {
			t.Errorf("a stranger sees %+v", e)
		}
	}

	all := fmt.Sprint(list(key("acme").Secret))
	o.close()
	o.open()
	if again := fmt.Sprint(list(owner.Secret)); again != all {
		t.Errorf("after a restart:\n%s\nwant\n%s", again, all)
	}
}
