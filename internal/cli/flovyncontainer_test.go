package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/perdure/perdure/api/flovyn/v1"
	"github.com/perdure/perdure/internal/pgtest"
)

const (
	containerOrg = "0f7c1c1e-5b5a-4c3e-9a35-2f6a52f7a111"
	containerKey = "flovyn_wk_test_0123456789abcdef"
	ownerKey     = "flovyn_sk_test_0123456789abcdef"
)

// containerFile is the file that is mounted into a container of a Flovyn server.
const containerFile = `
[[orgs]]
id = "` + containerOrg + `"
name = %q
slug = "acme"
tier = "FREE"
[auth]
enabled = true
[auth.static_api_key]
keys = [
  { key = "` + ownerKey + `", org_id = "` + containerOrg + `", principal_type = "User", principal_id = "api:test", role = "ADMIN" },
  { key = "` + containerKey + `", org_id = "` + containerOrg + `", principal_type = "Worker", principal_id = "worker:test" },
]
[auth.endpoints.http]
authenticators = ["static_api_key"]
authorizer = "cedar"
[some.future]
section = true
`

// image returns the instructions of the Dockerfile of the Flovyn contract, by name.
func image(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/flovyn.Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	says := map[string]string{}
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		says[word] = strings.TrimSpace(rest)
	}
	return says
}

// freePort returns a port that no process uses.
func freePort(t *testing.T) string {
	t.Helper()
	port, err := pgtest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// container is a server that runs with the settings of its image.
type container struct {
	*served

	http, grpc string // ports
}

// runContainer starts the command of the image with the environment of the contract.
func runContainer(t *testing.T, store, orgName string) *container {
	t.Helper()
	c := &container{http: freePort(t), grpc: freePort(t)}
	for name, value := range map[string]string{
		"DATABASE_URL": store, "SERVER_PORT": c.http, "GRPC_SERVER_PORT": c.grpc, "NATS__ENABLED": "true", "NATS__URL": "nats://nowhere:4222",
		"CONFIG_FILE": writeFile(t, t.TempDir(), "config.toml", fmt.Sprintf(containerFile, orgName)),
	} {
		t.Setenv(name, value)
	}

	var command []string
	if err := json.Unmarshal([]byte(image(t)["ENTRYPOINT"]), &command); err != nil || len(command) < 2 || command[0] != "/perdure" || command[1] != "serve" {
		t.Fatalf("the image runs %q, %v", command, err)
	}
	c.served = startServe(t, command[2:]...)
	return c
}

// get makes a request to the HTTP port.
func (c *container) get(path, key string) (code int, text string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://127.0.0.1:"+c.http+path, http.NoBody)
	if err != nil {
		c.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer reply.Body.Close()
	raw, err := io.ReadAll(reply.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply.StatusCode, string(raw)
}

// The image keeps the contract of a Flovyn container: ports, environment, file, health, and
// organizations that exist before the first call.
func TestFlovynContainer(t *testing.T) { //nolint:paralleltest // it sets the environment
	if says := image(t); says["EXPOSE"] != "8000 9090" || says["CMD"] != "" || says["ENV"] != "" {
		t.Errorf("the image exposes %q, has the command %q and the environment %q", says["EXPOSE"], says["CMD"], says["ENV"])
	}
	store := "file:" + t.TempDir() + "/container.db"
	c := runContainer(t, store, "Before")
	if code, text := c.get("/_/health", ""); code != http.StatusOK || !strings.Contains(text, `"status":"UP"`) || !strings.Contains(text, "connections are not encrypted") {
		t.Errorf("health: %d %s", code, text)
	}
	if code, text := c.get("/_/metrics", ""); code != http.StatusOK || !strings.Contains(text, "perdure_") {
		t.Errorf("metrics: %d, %d bytes", code, len(text))
	}
	for key, want := range map[string]int{"": http.StatusUnauthorized, "flovyn_sk_test_of_nobody_at_all": http.StatusUnauthorized, ownerKey: http.StatusOK} {
		code, text := c.get("/api/orgs/acme", key)
		if code != want || (code == http.StatusOK && (!strings.Contains(text, containerOrg) || !strings.Contains(text, "Before"))) {
			t.Errorf("the organization with key %q: %d %s", key, code, text)
		}
	}

	conn, err := grpc.NewClient("127.0.0.1:"+c.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	flows, request := pb.NewWorkflowDispatchClient(conn), &pb.StartWorkflowRequest{OrgId: containerOrg, WorkflowKind: "demo", Input: []byte("1")}
	if _, err := flows.StartWorkflow(t.Context(), request); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a start without a key: %v", err)
	}
	started, err := flows.StartWorkflow(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+containerKey), request)
	if err != nil {
		t.Fatal(err)
	}
	c.end()

	// A container with another file on the same database has the organization of that file, and
	// still has all executions.
	c = runContainer(t, store, "After")
	if code, text := c.get("/api/orgs/acme", ownerKey); code != http.StatusOK || !strings.Contains(text, "After") {
		t.Errorf("the organization after a restart: %d %s", code, text)
	}
	if code, text := c.get("/api/orgs/acme/workflow-executions/"+started.GetWorkflowExecutionId(), ownerKey); code != http.StatusOK || !strings.Contains(text, `"PENDING"`) {
		t.Errorf("the execution after a restart: %d %s", code, text)
	}
	c.end()
}
