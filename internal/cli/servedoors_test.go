package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/perdure/perdure/api/perdure/v1"
)

// logged returns the address in a line of the log.
func (s *served) logged(msg string) string {
	for line := range strings.Lines(s.log.String()) {
		var entry struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == msg {
			return entry.Address
		}
	}
	return ""
}

// A server counts and logs the requests of all its doors, and gives profiles to admins only.
func TestServeDoors(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--store", "memory:", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--access-log", "1",
		"--admin-key-file", writeFile(t, t.TempDir(), "key", serveKey))
	get := func(url, token string) (status int, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	root := "http://" + s.address
	get(root+"/v1/me", serveKey)
	get(root+"/v1/me", "")
	get(root+"/v1/nothing/of-the/kind", serveKey)
	get(root+"/api/orgs/acme/workers", serveKey)
	get(root+"/api/orgs/acme/workers", "")

	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := pb.NewClientServiceClient(conn)
	known := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+serveKey)
	if _, err := client.Server(known, &pb.ServerRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Server(t.Context(), &pb.ServerRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("no key: %v", err)
	}
	for _, method := range []string{"/perdure.v1.ClientService/Server", "/invented.Service/Method"} {
		err := conn.Invoke(known, method, &pb.DeliverRequest{Message: []byte("\xff\xff")}, &pb.ServerReply{})
		t.Logf("%s with another message: %v", method, err)
	}

	_, metrics := get(root+"/metrics", "")
	for _, want := range []string{
		`perdure_door_requests_total{code="200",door="rest",method="get-me"} 1`,
		`perdure_door_requests_total{code="401",door="rest",method="get-me"} 1`,
		`perdure_door_requests_total{code="404",door="rest",method="_other"} 1`,
		`perdure_door_requests_total{code="401",door="flovyn",method="GET orgs/{slug}/workers"} 1`,
		`perdure_door_requests_total{code="Unauthenticated",door="grpc",method="ClientService/Server"} 1`,
		`perdure_door_refusals_total{door="rest",reason="unauthenticated"} 1`,
		`perdure_door_refusals_total{door="grpc",reason="unauthenticated"} 1`,
		`perdure_door_request_seconds_count{door="rest",method="get-me"} 2`,
		`perdure_door_requests_open{door="rest",method="get-me"} 0`,
		`perdure_door_requests_total{code="OK",door="grpc",method="ClientService/Server"}`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	if strings.Contains(metrics, "invented") || strings.Contains(metrics, "of-the") {
		t.Error("a label has a name that a client has invented")
	}

	made, err := pb.NewAdminServiceClient(conn).CreateKey(known, &pb.CreateKeyRequest{Tenant: "default"})
	if err != nil {
		t.Fatal(err)
	}
	admin := "http://" + s.logged("profiles are at /debug/pprof")
	for path, want := range map[string]string{"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/heap?debug=1": "heap profile"} {
		if code, body := get(admin+path, serveKey); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.200s", path, code, body)
		}
		if code, _ := get(admin+path, ""); code != http.StatusUnauthorized {
			t.Errorf("%s without a key: %d", path, code)
		}
		if code, body := get(admin+path, made.GetSecret()); code != http.StatusForbidden || strings.Contains(body, want) {
			t.Errorf("%s with the key of a tenant: %d %.200s", path, code, body)
		}
		if code, _ := get(root+path, serveKey); code != http.StatusNotFound {
			t.Errorf("%s on the address of everyone: %d", path, code)
		}
	}
	if code, _ := get(admin+"/debug/pprof/cmdline", serveKey); code != http.StatusNotFound {
		t.Errorf("the arguments of the process: %d", code)
	}

	s.end()
	for _, want := range []string{`"door":"rest","method":"get-me","code":"200"`, `"door":"grpc","method":"ClientService/Server","code":"Unauthenticated"`, `"refused":"unauthenticated"`} {
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, s.log)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
