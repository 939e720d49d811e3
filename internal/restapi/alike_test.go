package restapi_test

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/authz/policy"
	"github.com/perdure/perdure/internal/model"
)

// route is the method and the path of an operation.
type route struct{ id, method, path string }

// routes returns the operations in the OpenAPI document of the server.
func (w *world) routes() (all []route) {
	for path, methods := range w.document()["paths"].(map[string]any) {
		for method, op := range methods.(map[string]any) {
			all = append(all, route{op.(map[string]any)["operationId"].(string), strings.ToUpper(method), path})
		}
	}
	slices.SortFunc(all, func(a, b route) int { return strings.Compare(a.id, b.id) })
	return all
}

var parameter = regexp.MustCompile(`\{[a-z]+\}`)

// fill replaces the parameters of a path.
func fill(path string, value func(name string) string) string {
	return parameter.ReplaceAllStringFunc(path, func(p string) string { return value(strings.Trim(p, "{}")) })
}

// ask makes a request that cannot succeed, and returns its status. If the reply is a stream, ask
// does not read it.
func (w *world) ask(r route, token string) int {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	path := fill(r.path, func(string) string { return "none" })
	body := strings.NewReader("")
	if r.method != http.MethodGet && r.method != http.MethodDelete {
		body = strings.NewReader("[]")
	}
	q, err := http.NewRequestWithContext(ctx, r.method, w.url+path, body)
	if err != nil {
		w.t.Fatal(err)
	}

	q.Header.Set("Content-Type", "application/json")
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	got, err := w.client.Do(q)
	if err != nil {
		w.t.Fatal(err)
	}

	_ = got.Body.Close()
	return got.StatusCode
}

// method sends an empty request to a method of gRPC, and returns the code of the reply. If the
// method streams, it does not read the stream.
func (w *world) method(conn *grpc.ClientConn, name, token string) codes.Code {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, name)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = stream.SendMsg(&emptypb.Empty{}) // the reply has the error
	_ = stream.CloseSend()
	if strings.HasSuffix(name, "/SubscribeToNotifications") { // it may send nothing
		if _, err := stream.Header(); err != nil {
			w.t.Fatal(err)
		}
		cancel()
	}
	return status.Code(stream.RecvMsg(&emptypb.Empty{}))
}

// REST and gRPC make the same decisions. For all callers and all operations, both refuse or both
// allow the call, as the policies say. Both refuse a caller that has no key, an invalid key or a
// revoked key.
func TestRESTAndGRPCDecideAlike(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	conn, err := grpc.NewClient(w.server.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := w.admin.CreateTenant(w.ctx, api.TenantChange{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	revoked := w.key("acme")
	if err := w.admin.RevokeKey(w.ctx, revoked.ID); err != nil {
		t.Fatal(err)
	}

	routes := map[string]route{}
	for _, r := range w.routes() {
		routes[r.id] = r
	}
	tokens := map[string]string{"": "", "junk": "nothing", "revoked": revoked.Secret, "admin": adminKey, "no role": w.key("acme").Secret}
	for _, role := range append(authz.TenantRoles(), "unknown") {
		tokens[role] = w.key("acme", role).Secret
	}
	policies, err := policy.Default()
	if err != nil {
		t.Fatal(err)
	}
	decisions := 0
	for who, token := range tokens {
		nobody := who == "" || who == "junk" || who == "revoked"
		for _, rule := range authz.Table() {
			// decided[true] has the REST operations and gRPC methods that have refused the call,
			// and decided[false] the others.
			decided := map[bool][]string{}
			for _, id := range rule.Operations {
				code := w.ask(routes[id], token)
				if nobody && code != http.StatusUnauthorized {
					t.Errorf("%q: %s: status %d", who, id, code)
				}
				decided[code == http.StatusForbidden] = append(decided[code == http.StatusForbidden], id)
			}
			for _, m := range rule.Methods {
				if who == "admin" && rule.Group == authz.Administer {
					continue // an empty request of an admin may change something
				}
				code := w.method(conn, m, token)
				if nobody && code != codes.Unauthenticated {
					t.Errorf("%q: %s: code %s", who, m, code)
				}
				decided[code == codes.PermissionDenied] = append(decided[code == codes.PermissionDenied], m)
			}

			decisions += len(decided[true]) + len(decided[false])
			if len(decided) > 1 {
				t.Errorf("%q: %s is refused by %v and not by %v", who, rule.Action, decided[true], decided[false])
			}
			refused := !nobody && policies.Authorize(identityOf(who), rule.Action) != nil
			if wrong := decided[!refused]; len(wrong) > 0 {
				t.Errorf("%q: the policies refuse %s: %v, and %v decide otherwise", who, rule.Action, refused, wrong)
			}
		}
	}
	if decisions < 1000 {
		t.Errorf("%d decisions", decisions)
	}

	me := w.want(http.StatusOK, `"tenant":"default"`, http.MethodGet, "/v1/me", "")
	if !strings.Contains(me.body, `"roles":["admin"]`) {
		t.Error(me.body)
	}
	w.token = tokens[authz.RoleReader]
	w.want(http.StatusForbidden, "may not execution:start", http.MethodPost, "/v1/executions", `{"workflow":"order","key":"1"}`)
	w.want(http.StatusForbidden, "choose the tenant", http.MethodGet, "/v1/executions", "", "Perdure-Tenant", model.DefaultTenant)
	if me := w.want(http.StatusOK, `"tenant":"acme"`, http.MethodGet, "/v1/me", ""); strings.Contains(me.body, "execution:start") || !strings.Contains(me.body, "execution:read") {
		t.Error(me.body)
	}
}

// identityOf returns the caller that a credential of TestRESTAndGRPCDecideAlike stands for.
func identityOf(who string) *authn.Identity {
	switch who {
	case "admin":
		return &authn.Identity{Tenant: model.DefaultTenant, Name: who, Admin: true}
	case "no role":
		return &authn.Identity{Tenant: "acme", Name: who}
	}
	return &authn.Identity{Tenant: "acme", Name: who, Roles: []string{who}}
}

// Every row of the table of actions names only operations that exist.
func TestTableHasNoOperationThatDoesNotExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, rule := range authz.Table() {
		for _, id := range rule.Operations {
			if !slices.Contains(w.rest.Operations(), id) {
				t.Errorf("%s of %s does not exist", id, rule.Action)
			}
		}
	}
}
