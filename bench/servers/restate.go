package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/ingress"
	"github.com/restatedev/sdk-go/server"

	"github.com/perdure/perdure/internal/bench"
)

// restatePartitions is the number of partitions of the server. The default of 24 is slower on a
// machine with two cores.
const restatePartitions = 2

// restateConnections is how many idle connections the clients keep. With the default of 2, most of
// 64 clients would open a new connection for each call.
const restateConnections = 256

// The names of the workflow.
const (
	restateService = "three"
	restateHandler = "run"
)

// restateSystem is Restate, with clients and the endpoint that runs the code in this process.
type restateSystem struct {
	onlyThree
	*bench.ServerProcess
	ingress  *ingress.Client
	stop     context.CancelFunc // stops the endpoint
	endpoint chan error         // receives how the endpoint has ended
}

// openRestate starts a server on free ports, with its data in a directory, and an endpoint.
func openRestate(ctx context.Context, program bench.Program, dir string) (bench.System, error) {
	free, err := bench.FreePorts(4)
	if err != nil {
		return nil, err
	}
	ports := restatePorts{node: free[0], ingress: free[1], admin: free[2], endpoint: free[3]}
	config := filepath.Join(dir, "restate.toml")
	if err := os.WriteFile(config, []byte(restateConfig(dir, ports)), 0o600); err != nil {
		return nil, err
	}

	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = restateConnections, restateConnections
	s := &restateSystem{
		ingress:  ingress.NewClient("http://"+loopback(ports.ingress), ingress.WithHttpClient(&http.Client{Transport: transport})),
		endpoint: make(chan error, 1),
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	workflow := restate.NewWorkflow(restateService).Handler(restateHandler, restate.NewWorkflowHandler(restateThree))
	code := server.NewRestate().WithLogger(slog.DiscardHandler, true).Bind(workflow)
	go func() { s.endpoint <- code.Start(running, loopback(ports.endpoint)) }()

	attempts := 0
	s.ServerProcess, err = program.Start(ctx, bench.Start{
		Args: []string{"--no-logo", "--config-file", config}, Hidden: []string{"RESTATE_"}, Log: filepath.Join(dir, "server.log"),
		// The ingress knows the workflow some time after the registration of the endpoint.
		Ready: func(ctx context.Context) error {
			if err := register(ctx, ports); err != nil {
				return err
			}
			attempts++
			return s.Three(ctx, "ready-"+strconv.Itoa(attempts))
		},
	})
	if err != nil {
		return nil, errors.Join(err, s.stopEndpoint())
	}

	return s, nil
}

// restatePorts are the ports of the server, and of the endpoint that it calls.
type restatePorts struct{ node, ingress, admin, endpoint int }

// loopback returns the address of a port on this machine.
func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// restateConfig returns the configuration of a server. What it does not name has its default.
func restateConfig(dir string, ports restatePorts) string {
	return fmt.Sprintf(`node-name = "bench"
base-dir = %q
bind-address = %q
listen-mode = "tcp"
default-num-partitions = %d
disable-telemetry = true

[ingress]
bind-address = %q

[admin]
bind-address = %q
`, filepath.Join(dir, "data"), loopback(ports.node), restatePartitions, loopback(ports.ingress), loopback(ports.admin))
}

// register makes the server discover the workflow at the endpoint.
func register(ctx context.Context, ports restatePorts) error {
	body, err := json.Marshal(map[string]any{"uri": "http://" + loopback(ports.endpoint), "force": true})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+loopback(ports.admin)+"/deployments", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")

	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		text, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("register the endpoint: %s: %s", answer.Status, text)
	}
	return nil
}

// restateThree is a workflow of three steps, one after the other.
func restateThree(ctx restate.WorkflowContext, in int) (out int, err error) {
	for range 3 {
		if out, err = restate.Run(ctx, func(restate.RunContext) (int, error) { return in, nil }); err != nil {
			return 0, err
		}
	}
	return out, nil
}

// Three implements bench.System.
func (s *restateSystem) Three(ctx context.Context, key string) error {
	_, err := ingress.Workflow[int, int](s.ingress, restateService, key, restateHandler).Request(ctx, 7)
	return err
}

// stopEndpoint stops the endpoint and waits until it has ended.
func (s *restateSystem) stopEndpoint() error {
	s.stop()
	return <-s.endpoint
}

// Close implements bench.System. It stops the server first, which has connections to the endpoint.
func (s *restateSystem) Close() error {
	return errors.Join(s.ServerProcess.Close(), s.stopEndpoint())
}
