package node_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/authz/policy"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
)

// office is a server with stored keys, and its operator.
type office struct {
	t      *testing.T
	ctx    context.Context
	url    string
	listen string
	server *node.Server
	admin  *remote.Admin
}

// newOffice opens a server on a file.
func newOffice(t *testing.T) *office {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	o := &office{t: t, ctx: ctx, url: "file:" + filepath.Join(t.TempDir(), "office.db")}
	o.listen = "127.0.0.1:0"
	o.open()
	o.listen = o.server.Addr().String()
	t.Cleanup(o.close)
	return o
}

func (o *office) open() {
	o.t.Helper()
	static, err := authn.NewAdminKey(key, model.DefaultTenant)
	if err != nil {
		o.t.Fatal(err)
	}
	policies, err := policy.Default()
	if err != nil {
		o.t.Fatal(err)
	}
	o.server, err = node.Serve(o.ctx, node.ServerConfig{
		Node: node.Config{URL: o.url}, Listen: o.listen, Authenticator: authn.NewKeyring(static), Authorizer: policies, Tenant: model.DefaultTenant,
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.admin = o.dial(key, "").Admin()
}

func (o *office) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := o.server.Close(ctx); err != nil {
		o.t.Error(err)
	}
}

func (o *office) try(token, tenant string) (*remote.Backend, error) {
	b, err := remote.Dial(o.ctx, remote.Config{Addresses: []string{o.server.Addr().String()}, PlainText: true, Token: token, Tenant: tenant})
	if err == nil {
		o.t.Cleanup(func() { _ = b.Close() })
	}
	return b, err
}

func (o *office) dial(token, tenant string) *remote.Backend {
	o.t.Helper()
	b, err := o.try(token, tenant)
	if err != nil {
		o.t.Fatal(err)
	}
	return b
}

// refused fails the test if an error does not have the given kind.
func (o *office) refused(what string, err error, want fault.Kind) {
	o.t.Helper()
	if fault.KindOf(err) != want || err == nil {
		o.t.Errorf("%s: %v, want %s", what, err, want)
	}
}

func (o *office) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// An operator creates a tenant and a key for it. Programs with the key work in the tenant and see
// nothing of other tenants. The key survives a restart. When the key ends, everything that uses it
// ends.
func TestTenantsAndKeys(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	open, weight := int64(5), 3
	made, err := o.admin.CreateTenant(o.ctx, api.TenantChange{Name: "acme", Note: new("the first"), Open: &open})
	o.must(err)
	if made.Allowance != (api.Allowance{Open: 5}) || made.Note != "the first" || made.Created.IsZero() || made.Disabled {
		t.Errorf("created %+v", made)
	}
	_, err = o.admin.CreateTenant(o.ctx, api.TenantChange{Name: "acme", Open: &open})
	o.refused("a second acme", err, fault.AlreadyExists)
	_, err = o.admin.CreateTenant(o.ctx, api.TenantChange{Name: "a/b"})
	o.refused("a bad name", err, fault.Invalid)
	_, err = o.admin.SetTenant(o.ctx, api.TenantChange{Name: "acme", Weight: new(-1)})
	o.refused("a bad weight", err, fault.Invalid)
	_, err = o.admin.SetTenant(o.ctx, api.TenantChange{Name: "nobody"})
	o.refused("an unknown tenant", err, fault.NotFound)
	changed, err := o.admin.SetTenant(o.ctx, api.TenantChange{Name: "acme", Weight: &weight})
	o.must(err)
	if changed.Allowance != (api.Allowance{Open: 5, Weight: 3}) || changed.Note != "the first" || changed.Created != made.Created {
		t.Errorf("changed to %+v", changed)
	}

	_, err = o.admin.CreateKey(o.ctx, api.KeyRequest{Tenant: "nobody"})
	o.refused("a key of an unknown tenant", err, fault.NotFound)
	_, err = o.admin.CreateKey(o.ctx, api.KeyRequest{})
	o.refused("a key of no tenant", err, fault.Invalid)
	_, err = o.admin.CreateKey(o.ctx, api.KeyRequest{Tenant: "acme", Admin: true})
	o.refused("an admin key of a tenant", err, fault.Invalid)
	k, err := o.admin.CreateKey(o.ctx, api.KeyRequest{Tenant: "acme", Note: "ci"})
	o.must(err)
	other, err := o.admin.CreateKey(o.ctx, api.KeyRequest{Tenant: "acme"})
	o.must(err)
	if listed, err := o.admin.Keys(o.ctx, "acme"); err != nil || len(listed) != 2 || listed[0].ID != k.ID || listed[0].Note != "ci" || listed[1].ID != other.ID {
		t.Errorf("keys %+v, %v", listed, err)
	}
	o.notStored(k.Secret)

	b := o.dial(k.Secret, "")
	if b.Tenant() != "acme" {
		t.Errorf("the key acts in tenant %q", b.Tenant())
	}
	_, err = o.try(k.Secret, "default")
	o.refused("another tenant", err, fault.Denied)
	_, err = o.try(k.Secret[:len(k.Secret)-1]+"0", "")
	o.refused("another secret of the same id", err, fault.Unauthenticated)
	o.deniedEverywhere(k.Secret)
	if _, err := b.Allowance(o.ctx, "acme"); err != nil {
		t.Errorf("a tenant cannot read its own allowance: %v", err)
	}
	o.refused("a tenant that raises its own allowance", b.SetAllowance(o.ctx, "acme", api.Allowance{}), fault.Denied)

	o.close()
	o.open()
	b = o.dial(k.Secret, "")
	if all, err := o.admin.Tenants(o.ctx); err != nil || !slices.Equal(names(all), []string{"acme", "default"}) {
		t.Errorf("tenants after a restart: %+v, %v", all, err)
	}

	o.endsWithItsKey(b, k)
	if b = o.dial(other.Secret, ""); b.Tenant() != "acme" {
		t.Errorf("the other key acts in tenant %q", b.Tenant())
	}
	o.disables(b, other.Secret)
}

func names(all []api.TenantInfo) (names []string) {
	for _, t := range all {
		names = append(names, t.Name)
	}
	return names
}

// notStored checks that no setting contains a secret.
func (o *office) notStored(secret string) {
	o.t.Helper()
	all, err := o.server.Node().Store().LoadSettings(o.ctx, 0)
	o.must(err)
	for _, s := range all.Changed {
		if body := string(s.Body); strings.Contains(body, secret) || strings.Contains(body, secret[len(secret)-52:]) {
			o.t.Errorf("setting %s has the secret", s.SettingKey)
		}
	}
}

// deniedEverywhere calls every method of the admin service with the key of a tenant.
func (o *office) deniedEverywhere(token string) {
	o.t.Helper()
	conn, err := grpc.NewClient(o.server.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	o.must(err)
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(o.ctx, "authorization", "Bearer "+token)
	desc := &pb.AdminService_ServiceDesc
	if len(desc.Methods) < 13 || len(desc.Streams) > 0 {
		o.t.Errorf("%d methods and %d streams", len(desc.Methods), len(desc.Streams))
	}
	for _, m := range desc.Methods {
		if m.MethodName == "Audit" {
			continue // an owner may read the entries of its tenant
		}
		err := conn.Invoke(ctx, "/"+desc.ServiceName+"/"+m.MethodName, &emptypb.Empty{}, &emptypb.Empty{})
		if status.Code(err) != codes.PermissionDenied {
			o.t.Errorf("%s with the key of a tenant: %v", m.MethodName, err)
		}
	}
}

// idle is a worker that gets nothing to do.
type idle struct{}

func (idle) Execute([]model.Claim)                 {}
func (idle) Stop(model.ClaimRef, model.StopReason) {}
func (idle) Settle(model.ClaimRef, error)          {}

// endsWithItsKey revokes a key while a worker and a waiting call use it, and checks that both end.
func (o *office) endsWithItsKey(b *remote.Backend, k api.NewKey) {
	o.t.Helper()
	_, err := b.JoinTasks(o.ctx, idle{}, model.TaskOffer{Tenants: []string{"acme"}, Name: "w", Queues: []string{"q"}, Kinds: []string{"mail"}, Slots: 2})
	o.must(err)
	sessions, err := o.admin.WorkerSessions(o.ctx, "acme")
	o.must(err)
	if len(sessions) != 1 || sessions[0].Caller != "key "+k.ID || !sessions[0].Connected || sessions[0].Slots != 2 || sessions[0].Name != "w" {
		o.t.Errorf("sessions %+v", sessions)
	}
	if others, err := o.admin.WorkerSessions(o.ctx, "default"); err != nil || len(others) > 0 {
		o.t.Errorf("sessions of another tenant: %+v, %v", others, err)
	}

	address := model.Address{Tenant: "acme", Type: "shop", Key: "a"}
	_, err = b.Start(o.ctx, api.StartRequest{Address: address})
	o.must(err)
	ended := make(chan error, 1)
	go func() {
		_, err := b.Await(o.ctx, api.Target{Address: address})
		ended <- err
	}()

	o.must(o.admin.RevokeKey(o.ctx, k.ID))
	o.refused("a call that waits", <-ended, fault.Unauthenticated)
	_, err = b.Count(o.ctx, api.ListRequest{Tenant: "acme"})
	o.refused("a call with a revoked key", err, fault.Unauthenticated)
	for connected := true; connected; {
		sessions, err := o.admin.WorkerSessions(o.ctx, "acme")
		o.must(err)
		connected = len(sessions) > 0 && sessions[0].Connected
	}
	o.refused("a second revocation", o.admin.RevokeKey(o.ctx, k.ID), fault.NotFound)
}

// disables disables a tenant and enables it again. Admins can use the tenant all the time.
func (o *office) disables(b *remote.Backend, token string) {
	o.t.Helper()
	count := func(b *remote.Backend) error {
		_, err := b.Count(o.ctx, api.ListRequest{Tenant: "acme"})
		return err
	}
	off, on := true, false
	_, err := o.admin.SetTenant(o.ctx, api.TenantChange{Name: "acme", Disabled: &off})
	o.must(err)
	o.refused("a disabled tenant", count(b), fault.Denied)
	_, err = o.try(token, "")
	o.refused("a disabled tenant", err, fault.Denied)
	o.must(count(o.dial(key, "acme")))
	_, err = o.admin.SetTenant(o.ctx, api.TenantChange{Name: "acme", Disabled: &on})
	o.must(err)
	o.must(count(b))
}

// A stored admin key has the rights of the static admin key.
func TestStoredAdminKey(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	k, err := o.admin.CreateKey(o.ctx, api.KeyRequest{Admin: true, Note: "ops"})
	o.must(err)
	b := o.dial(k.Secret, "acme")
	if b.Tenant() != "acme" {
		t.Errorf("the admin key acts in tenant %q", b.Tenant())
	}
	all, err := b.Admin().Keys(o.ctx, "")
	o.must(err)
	if len(all) != 1 || all[0].ID != k.ID || all[0].Note != "ops" || !all[0].Admin || all[0].Tenant != "" {
		t.Errorf("keys %+v", all)
	}

	nodes, err := b.Admin().Nodes(o.ctx)
	o.must(err)
	if len(nodes) != 1 || !nodes[0].Self || !nodes[0].Live || nodes[0].Shards == 0 || nodes[0].Address != o.server.Addr().String() || time.Since(nodes[0].Since.Std()) > time.Hour {
		t.Errorf("nodes %+v", nodes)
	}
	h, err := b.Admin().Health(o.ctx)
	o.must(err)
	if !h.Ready || len(h.Reasons) > 0 || h.Node != nodes[0].ID || h.Since.IsZero() {
		t.Errorf("health %+v", h)
	}

	o.must(b.Admin().RevokeKey(o.ctx, k.ID))
	_, err = b.Admin().Keys(o.ctx, "")
	o.refused("a revoked admin key", err, fault.Unauthenticated)
}

// Settings are listed with their versions and changed by compare-and-set. The server checks a
// changed setting as strictly as the call that exists for that setting. Keys are not among the
// settings.
func TestSettingsOfATenant(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, err := o.admin.CreateTenant(o.ctx, api.TenantChange{Name: "acme", Starts: new(int64(9))})
	o.must(err)
	_, err = o.admin.CreateKey(o.ctx, api.KeyRequest{Tenant: "acme"})
	o.must(err)
	limit := api.SettingChange{Tenant: "acme", Kind: "limit", Name: "smtp", Body: []byte(`{"name":"smtp","per":"name","concurrency":2}`), Version: new(int64(0))}
	set, err := o.admin.SetSetting(o.ctx, limit)
	o.must(err)
	_, err = o.admin.SetSetting(o.ctx, limit)
	o.refused("a limit that must not exist", err, fault.Conflict)

	all, err := o.admin.Settings(o.ctx, "acme", "")
	o.must(err)
	var got []string
	for _, s := range all {
		got = append(got, s.Kind+"/"+s.Name)
	}
	if !slices.Equal(got, []string{"limit/smtp", "tenant/allowance", "tenant/record"}) {
		t.Errorf("settings %v", got)
	}
	if all[0].Version != set.Version || all[0].Fixed || !all[2].Fixed || !strings.Contains(string(all[0].Body), `"concurrency":2`) {
		t.Errorf("settings %+v", all)
	}
	if limits, err := o.dial(key, "acme").Limits(o.ctx, "acme"); err != nil || len(limits) != 1 || limits[0].Rule.Numbers.Concurrency != 2 {
		t.Errorf("limits %+v, %v", limits, err)
	}

	for what, bad := range map[string]api.SettingChange{
		"a field that does not exist": {Kind: "limit", Name: "smtp", Body: []byte(`{"name":"smtp","concurency":2}`)},
		"another name":                {Kind: "limit", Name: "smtp", Body: []byte(`{"name":"mail","per":"name","concurrency":2}`)},
		"nonsense":                    {Kind: "limit", Name: "smtp", Body: []byte(`{"name":"smtp","per":"name","concurrency":-2}`)},
		"a record":                    {Kind: "tenant", Name: "record", Body: []byte(`{}`)},
		"a key":                       {Kind: "key", Name: "x", Body: []byte(`{}`)},
		"a page of the ledger":        {Kind: "limit_page", Name: "00", Body: []byte(`{}`)},
		"an allowance":                {Kind: "tenant", Name: "allowance", Body: []byte(`{"weight":-1}`)},
		"two values":                  {Kind: "queue", Name: "q", Body: []byte(`{} {}`)},
	} {
		bad.Tenant = "acme"
		_, err := o.admin.SetSetting(o.ctx, bad)
		o.refused(what, err, fault.Invalid)
	}

	_, err = o.admin.SetSetting(o.ctx, api.SettingChange{Tenant: "acme", Kind: "limit", Name: "smtp", Version: new(set.Version + 100)})
	o.refused("a removal of another version", err, fault.Conflict)
	_, err = o.admin.SetSetting(o.ctx, api.SettingChange{Tenant: "acme", Kind: "limit", Name: "smtp", Version: &set.Version})
	o.must(err)
	_, err = o.admin.SetSetting(o.ctx, api.SettingChange{Tenant: "acme", Kind: "limit", Name: "smtp"})
	o.refused("a removal of nothing", err, fault.NotFound)
}

// Every method of the protocol obeys the roles of keys, and so does every stream. Keys expire, and
// can be replaced while programs use them.
func TestRolesOfKeys(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for _, r := range []api.KeyRequest{
		{Tenant: "default", Roles: []string{authz.RoleAdmin}},
		{Tenant: "default", Roles: []string{"a b"}},
		{Tenant: "default", Roles: []string{""}},
		{Tenant: "default", Roles: make([]string, 17)},
		{Admin: true, Roles: []string{"reader"}},
		{Tenant: "default", Lifetime: -1},
	} {
		_, err := o.admin.CreateKey(o.ctx, r)
		o.refused(strings.Join(r.Roles, ","), err, fault.Invalid)
	}
	_, err := o.admin.CreateTenant(o.ctx, api.TenantChange{Name: "acme"})
	o.must(err)

	policies, err := policy.Default()
	o.must(err)
	conn, err := grpc.NewClient(o.server.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	o.must(err)
	defer conn.Close()
	for _, roles := range [][]string{{"reader"}, {"client"}, {"worker"}, {"operator"}, {"owner"}, nil, {"reader", "worker"}, {"unknown"}} {
		k, err := o.admin.CreateKey(o.ctx, api.KeyRequest{Tenant: "acme", Roles: roles})
		o.must(err)
		if !slices.Equal(k.Roles, roles) {
			t.Errorf("the key has roles %v, want %v", k.Roles, roles)
		}
		who := &authn.Identity{Name: "key " + k.ID, Tenant: "acme", Roles: roles}
		for _, r := range authz.Table() {
			for _, m := range r.Methods {
				got, want := !o.deniedTo(conn, k.Secret, m), policies.Authorize(who, r.Action) == nil
				if got != want {
					t.Errorf("%v: %s is allowed: %v, want %v", roles, m, got, want)
				}
			}
		}
	}

	old, err := o.admin.CreateKey(o.ctx, api.KeyRequest{Tenant: "acme", Roles: []string{"client"}, Note: "shop", Lifetime: time.Hour})
	o.must(err)
	fresh, err := o.admin.RotateKey(o.ctx, api.RotateRequest{ID: old.ID, Overlap: time.Minute})
	o.must(err)
	if fresh.ID == old.ID || fresh.Note != "shop" || fresh.Tenant != "acme" || !slices.Equal(fresh.Roles, old.Roles) || fresh.Expires.Sub(fresh.Created) != time.Hour {
		t.Errorf("rotated to %+v", fresh)
	}
	_ = o.dial(old.Secret, "")
	_ = o.dial(fresh.Secret, "")
	all, err := o.admin.Keys(o.ctx, "acme")
	o.must(err)
	i := slices.IndexFunc(all, func(k api.KeyInfo) bool { return k.ID == old.ID })
	if i < 0 || all[i].Expires >= old.Expires {
		t.Errorf("the old key is %+v", all)
	}
	last, err := o.admin.RotateKey(o.ctx, api.RotateRequest{ID: fresh.ID})
	o.must(err)
	_, err = o.try(fresh.Secret, "")
	o.refused("a key that was replaced at once", err, fault.Unauthenticated)
	_ = o.dial(last.Secret, "")
	_, err = o.admin.RotateKey(o.ctx, api.RotateRequest{ID: fresh.ID})
	o.refused("a key that is gone", err, fault.NotFound)
}

// deniedTo reports whether a method refuses a caller as not allowed. It sends an empty request.
func (o *office) deniedTo(conn *grpc.ClientConn, token, method string) bool {
	o.t.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(o.ctx, "authorization", "Bearer "+token))
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	o.must(err)
	_ = stream.SendMsg(&emptypb.Empty{}) // the reply has the error
	_ = stream.CloseSend()
	if strings.HasSuffix(method, "/Watch") { // its first message comes immediately, and it never ends
		return status.Code(stream.RecvMsg(&emptypb.Empty{})) == codes.PermissionDenied
	}
	if strings.HasSuffix(method, "/SubscribeToNotifications") { // it never ends, and may say nothing
		_, err := stream.Header()
		o.must(err)
		cancel()
	}
	for {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return status.Code(err) == codes.PermissionDenied
		}
	}
}
