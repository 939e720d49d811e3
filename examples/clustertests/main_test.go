package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// envNode names a database. If it is set, the test binary runs the program itself on that database.
const envNode = "PERDURE_EXAMPLE_CLUSTERTESTS"

func TestMain(m *testing.M) {
	if url := os.Getenv(envNode); url != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		cfg, err := readConfig([]string{"-postgres", url, "-listen", "127.0.0.1:0", "-unsafe"}, os.Getenv)
		if err == nil {
			cfg.lease = lease
			err = run(ctx, cfg, func(address string) { fmt.Println(address) })
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(pgtest.Main(m).Run())
}

// lease is short, so that other nodes soon replace nodes that were killed.
const lease = 2 * time.Second

// balancer sends each request to the next of its nodes.
type balancer struct {
	t *testing.T

	mu    sync.Mutex
	nodes []string // addresses
	next  int
}

func (b *balancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	return b.nodes[b.next%len(b.nodes)]
}

// try sends a request and returns the status and the body.
func (b *balancer) try(method, path, body string, header ...string) (int, string, error) {
	r, err := http.NewRequestWithContext(b.t.Context(), method, "http://"+b.pick()+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if len(header) == 2 {
		r.Header.Set(header[0], header[1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), errors.Join(err, resp.Body.Close())
}

// ok sends a request that must succeed.
func (b *balancer) ok(method, path, body string, header ...string) string {
	b.t.Helper()
	status, text, err := b.try(method, path, body, header...)
	if status != http.StatusOK || err != nil {
		b.t.Fatalf("%s %s %s: %d %s %v", method, path, body, status, text, err)
	}
	return text
}

// startNode runs a node in this process until the end of the test.
func startNode(t *testing.T, url, name string) (address string) {
	t.Helper()
	cfg, err := readConfig([]string{"-listen", "127.0.0.1:0", "-runner", name, "-unsafe"}, func(key string) string {
		return map[string]string{"POSTGRES_URL": url, "ETCD_ENDPOINTS": "etcd:2379"}[key]
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.logger = nil
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	listens, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- run(ctx, cfg, func(address string) { listens <- address }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("node %s: %v", name, err)
		}
	})

	select {
	case address := <-listens:
		return address
	case err := <-ended:
		ended <- nil
		t.Fatalf("node %s: %v", name, err)
		return ""
	}
}

// when matches a time in the answers below.
const when = `"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`

// walk has a request for every route. The order matters, because an answer depends on the requests
// before it. The test compares each answer as a whole. In an answer, WHEN means any time and NUM
// means any number. The answer 500 means any error.
const walk = `
GET /health -> {"status":"ok"}
GET /counter/c -> 0
POST /counter/c/increment 5 -> 5
POST /counter/c/increment 5 -> 10
POST /counter/c/decrement 3 -> 7
GET /counter/c -> 7
POST /counter/c/increment "x" -> 500
POST /counter/c/increment null -> 500
POST /counter/c/reset {} -> null
GET /counter/c -> 0
GET /stateless-counter/c -> 0
POST /stateless-counter/c/increment 5 -> 5
POST /stateless-counter/c/increment 5 -> 10
POST /stateless-counter/c/decrement 3 -> 7
GET /stateless-counter/c -> 7
POST /stateless-counter/c/reset null -> null
GET /stateless-counter/c -> 0
GET /kv/k/get/a -> null
GET /kv/k/keys -> []
POST /kv/k/set {"key":"b","value":{"z": 1.50, "a": ["<&>", null]}} -> null
POST /kv/k/set {"key":"a","value":null} -> null
POST /kv/k/set {"key":"c"} -> 500
GET /kv/k/get/b -> {"a":["<&>",null],"z":1.50}
GET /kv/k/get/a -> null
GET /kv/k/keys -> ["a","b"]
DELETE /kv/k/delete/b -> true
DELETE /kv/k/delete/b -> false
POST /kv/k/clear null -> null
GET /kv/k/keys -> []
POST /workflow/w/run-simple {"exec_id":"e1"} -> "completed:e1"
POST /workflow/w/run-simple {"exec_id":"e1"} -> "completed:e1"
POST /workflow/w/run-failing {"exec_id":"e2","fail_at":1} -> 500
POST /workflow/w/run-failing {"exec_id":"e2","fail_at":1} -> 500
POST /workflow/w/run-failing {"exec_id":"e3","fail_at":3} -> "completed:e3"
POST /workflow/w/run-long {"exec_id":"e0","steps":12} -> "completed:e0"
POST /workflow/w/run-long {"exec_id":"e0","steps":2} -> "completed:e0"
POST /workflow/w/run-long {"exec_id":"e4","steps":-1} -> 500
GET /workflow/w/execution/e2 -> {"id":"e2","steps_completed":["step0"],"result":"failed:step1"}
GET /workflow/w/execution/none -> null
GET /workflow/w/executions -> [{"id":"e0","steps_completed":["step0","step1","step2","step3","step4","step5","step6","step7","step8","step9","step10","step11"],"result":"completed:e0"},{"id":"e1","steps_completed":["step1","step2","step3"],"result":"completed:e1"},{"id":"e2","steps_completed":["step0"],"result":"failed:step1"},{"id":"e3","steps_completed":["step0","step1","step2"],"result":"completed:e3"}]
GET /workflow/none/executions -> []
POST /activity/a/run {"exec_id":"x"} -> ["x-start","response_from_https:__api.example.com_process","x-process","response_from_https:__api.example.com_complete","x-complete"]
POST /activity/a/run {} -> 500
GET /activity/a/log -> [{"id":"x-start","action":"workflow_started","timestamp":WHEN},{"id":"x-process","action":"data_processed","timestamp":WHEN},{"id":"x-complete","action":"workflow_completed","timestamp":WHEN}]
GET /sql-activity/s/state -> {"account_id":"s","transfer_count":0,"total_transferred":0}
POST /sql-activity/s/transfer {"to_entity":"t","amount":100} -> 1
POST /sql-activity/s/transfer {"to_entity":"t","amount":100} -> 1
POST /sql-activity/s/transfer {"to_entity":"t","amount":50} -> 2
POST /sql-activity/s/failing-transfer {"to_entity":"t","amount":7} -> 500
GET /sql-activity/s/state -> {"account_id":"s","transfer_count":2,"total_transferred":150}
GET /sql-activity/s/sql-count -> 2
GET /trait/t -> ""
GET /trait/t/version -> 0
GET /trait/t/audit-log -> []
POST /trait/t/update {"data":"one"} -> null
POST /trait/t/update {"data":"two"} -> null
POST /trait/t/update {} -> 500
GET /trait/t -> "two"
GET /trait/t/version -> 2
GET /trait/t/audit-log -> [{"id":"audit-1","action":"update","actor":"system","timestamp":WHEN,"details":"Updated data to: one"},{"id":"audit-2","action":"update","actor":"system","timestamp":WHEN,"details":"Updated data to: two"}]
GET /timer/m/fires -> []
GET /timer/m/pending -> []
POST /timer/m/cancel {"timer_id":"none"} -> false
POST /timer/m/schedule {"timer_id":"t1","delay_ms":20} -> null
POST /timer/m/schedule {"timer_id":"t1","delay_ms":20} -> null
GET /timer/m/fires -> [{"timer_id":"t1","scheduled_at":WHEN,"fired_at":WHEN}]
GET /timer/m/pending -> []
POST /timer/m/clear-fires {} -> null
GET /timer/m/fires -> []
POST /cross/a/send {"target_type":"CrossEntity","target_id":"b","message":"hi"} -> null
POST /cross/a/send {"target_type":"Counter","target_id":"b","message":"hi"} -> 500
POST /cross/b/receive {"from":"z","message":"ho"} -> null
GET /cross/b/messages -> [{"from_entity":"a","content":"hi","timestamp":WHEN},{"from_entity":"z","content":"ho","timestamp":WHEN}]
POST /cross/b/clear {} -> null
GET /cross/b/messages -> []
POST /cross/a/ping-pong {"partner_id":"b","count":3} -> 6
POST /activity-group/o/process-order {"item_count":2,"amount":99} -> {"order_id":"o","reservation_id":"res-o-2","transaction_id":"tx-o-99","confirmation":"confirmed-res-o-2","summary":"order=o,res=res-o-2,tx=tx-o-99"}
POST /activity-group/o/process-order {"item_count":2,"amount":99} -> {"order_id":"o","reservation_id":"res-o-2","transaction_id":"tx-o-99","confirmation":"confirmed-res-o-2","summary":"order=o,res=res-o-2,tx=tx-o-99"}
GET /activity-group/o/order-steps -> [{"step":"reserve","detail":"res-o-2","created_at":WHEN},{"step":"charge","detail":"tx-o-99","created_at":WHEN},{"step":"confirm","detail":"confirmed-res-o-2","created_at":WHEN},{"step":"summary","detail":"order=o,res=res-o-2,tx=tx-o-99","created_at":WHEN}]
GET /debug/shards -> {"total_shards":300,"shards_per_group":300,"shard_groups":["default"]}
GET /debug/messages?entity_type=TraitTest&entity_id=t&processed=true&tag=update&limit=1 -> [{"request_id":NUM,"shard_group":"default","shard_id":NUM,"entity_type":"TraitTest","entity_id":"t","tag":"update","is_request":true,"processed":true,"retry_count":0,"created_at":WHEN}]
GET /debug/messages?processed=false -> []
GET /debug/messages?limit=x -> 500
GET /debug/replies?is_exit=true&limit=1 -> [{"id":NUM,"request_id":NUM,"sequence":2147483647,"is_exit":true,"created_at":WHEN}]
GET /debug/replies?is_exit=false -> []
GET /debug/journal?prefix=OrderWorkflow/o/res&completed=true -> [{"key":"OrderWorkflow/o/reserve","value_size":9,"created_at":WHEN,"updated_at":WHEN,"completed_at":WHEN}]
GET /debug/journal?completed=false -> []
`

// Every route gives the answer that the contract says. Two nodes answer in turn.
func TestEveryRoute(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := &balancer{t: t, nodes: []string{startNode(t, url, "one:9000"), startNode(t, url, "two:9000")}}
	for line := range strings.Lines(strings.TrimSpace(walk)) {
		request, want, _ := strings.Cut(strings.TrimSpace(line), " -> ")
		method, rest, _ := strings.Cut(request, " ")
		path, body, _ := strings.Cut(rest, " ")
		status, got, err := b.try(method, path, body)
		if err != nil {
			t.Fatalf("%s: %v", request, err)
		}

		if want == "500" {
			if status != http.StatusInternalServerError || !strings.HasPrefix(got, `{"error":"`) {
				t.Errorf("%s: %d %s", request, status, got)
			}
			continue
		}

		pattern := strings.NewReplacer("WHEN", when, "NUM", `\d+`).Replace(regexp.QuoteMeta(want))
		if status != http.StatusOK || !regexp.MustCompile("^"+pattern+"$").MatchString(got) {
			t.Errorf("%s: %d %s\nwant %s", request, status, got, want)
		}
	}

	testAtOnce(b)
	testTimerIsCancelled(b)
	testSingletonRoutes(b)
}

// testAtOnce changes counters through all nodes at the same time. No change is lost. A change that
// a client repeats under the same key is made once.
func testAtOnce(b *balancer) {
	for _, path := range []string{"/counter/many", "/stateless-counter/many"} {
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				status, text, err := b.try("POST", path+"/increment", "1", "Idempotency-Key", fmt.Sprint(i/2))
				if status != http.StatusOK || err != nil {
					b.t.Errorf("%s: %d %s %v", path, status, text, err)
				}
			})
		}
		all.Wait()
		if got := b.ok("GET", path, ""); got != "20" {
			b.t.Errorf("%s is %s after 20 increments that were each sent twice", path, got)
		}
	}
}

// testTimerIsCancelled cancels a timer while the request that scheduled the timer waits for its
// answer.
func testTimerIsCancelled(b *balancer) {
	done := make(chan string, 1)
	go func() {
		_, text, err := b.try("POST", "/timer/c/schedule", `{"timer_id":"late","delay_ms":1500}`)
		done <- fmt.Sprint(text, err)
	}()

	for b.ok("GET", "/timer/c/pending", "") == "[]" {
		time.Sleep(10 * time.Millisecond)
	}

	for _, want := range []string{"true", "false"} {
		if got := b.ok("POST", "/timer/c/cancel", `{"timer_id":"late"}`); got != want {
			b.t.Errorf("cancel says %s, want %s", got, want)
		}
	}

	pending := regexp.MustCompile(`^\[{"timer_id":"late","scheduled_at":` + when + `,"delay_ms":1500,"cancelled":true}\]$`)
	if got := b.ok("GET", "/timer/c/pending", ""); !pending.MatchString(got) {
		b.t.Errorf("pending timers are %s", got)
	}
	if got := <-done; got != "null<nil>" {
		b.t.Errorf("the request that scheduled the timer got %s", got)
	}
	if got := b.ok("GET", "/timer/c/pending", "") + b.ok("GET", "/timer/c/fires", ""); got != "[][]" {
		b.t.Errorf("after the time of the cancelled timer, the pending timers and the fires are %s, want none", got)
	}
}

// testSingletonRoutes checks the routes of the singleton twice: after its first ticks, and after a
// reset has removed the row that counts them.
func testSingletonRoutes(b *balancer) {
	state := regexp.MustCompile(`^{"runner_id":"(one|two):9000","tick_count":\d+,"last_tick_at":` + when + `,"became_leader_at":` + when + `,"graceful_shutdown_at":null}$`)
	for range 2 {
		for b.ok("GET", "/singleton/tick-count", "") == "0" {
			time.Sleep(20 * time.Millisecond)
		}
		if got := b.ok("GET", "/singleton/state", ""); !state.MatchString(got) {
			b.t.Errorf("the state of the singleton is %s", got)
		}
		if got := b.ok("GET", "/singleton/current-runner", ""); got != `"one:9000"` && got != `"two:9000"` {
			b.t.Errorf("the singleton is on %s", got)
		}
		b.ok("POST", "/singleton/reset", "{}")
	}

	types := b.ok("GET", "/debug/entities", "")
	if !strings.HasPrefix(types, `{"entity_types":["Counter",`) || !regexp.MustCompile(`"active_count":\d+}$`).MatchString(types) {
		b.t.Errorf("entities: %s", types)
	}
}

// spawned is a node in a separate process.
type spawned struct {
	cmd     *exec.Cmd
	address string
}

func spawnNode(t *testing.T, url, name string) *spawned {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envNode+"="+url, "RUNNER_ADDRESS="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	lines.Scan()
	return &spawned{cmd, lines.Text()}
}

// The test kills a node while workflows and counters run. The other node continues the workflow
// where it was, continues to count, and runs the singleton. When that node stops too, a third node
// finds everything.
func TestNodesDie(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	first := spawnNode(t, url, "first:1")
	on := func(n *spawned) *balancer { return &balancer{t: t, nodes: []string{n.address}} }
	for on(first).ok("GET", "/singleton/tick-count", "") == "0" {
		time.Sleep(20 * time.Millisecond)
	}
	second := spawnNode(t, url, "second:2")
	both := &balancer{t: t, nodes: []string{first.address, second.address}}
	for i := range 10 {
		both.ok("POST", "/counter/"+fmt.Sprint(i)+"/increment", "1")
	}

	const steps = 300
	go func() { // this request fails, because the test kills the first node
		_, _, _ = on(first).try("POST", "/workflow/w/run-long", fmt.Sprintf(`{"exec_id":"e","steps":%d}`, steps))
	}()
	for !strings.Contains(on(second).ok("GET", "/workflow/w/execution/e", ""), "step10") {
		time.Sleep(5 * time.Millisecond)
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait() // killed

	if got := on(second).ok("POST", "/workflow/w/run-long", fmt.Sprintf(`{"exec_id":"e","steps":%d}`, steps)); got != `"completed:e"` {
		t.Errorf("the workflow ended with %s", got)
	}
	want := `{"id":"e","steps_completed":["` + strings.Join(numbered(steps), `","`) + `"],"result":"completed:e"}`
	if got := on(second).ok("GET", "/workflow/w/execution/e", ""); got != want {
		t.Errorf("the record is %s", got)
	}
	for i := range 10 {
		if got := on(second).ok("POST", "/counter/"+fmt.Sprint(i)+"/increment", "1"); got != "2" {
			t.Errorf("counter %d is %s", i, got)
		}
	}
	for on(second).ok("GET", "/singleton/current-runner", "") != `"second:2"` {
		time.Sleep(20 * time.Millisecond)
	}

	// All nodes are down for a moment.
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.cmd.Wait(); err != nil {
		t.Errorf("the second node: %v", err)
	}
	third := on(spawnNode(t, url, "third:3"))
	if got := third.ok("GET", "/counter/1", ""); got != "2" {
		t.Errorf("counter 1 is %s after a restart of all nodes", got)
	}
	for third.ok("GET", "/singleton/current-runner", "") != `"third:3"` {
		time.Sleep(20 * time.Millisecond)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	env := map[string]string{"POSTGRES_URL": "postgres://db", "LISTEN_ADDR": ":1", "RUNNER_ADDRESS": "node1:9000", "ETCD_ENDPOINTS": "etcd:2379", "GRPC_PORT": "9000"}
	cfg, err := readConfig([]string{"-listen", ":2"}, func(key string) string { return env[key] })
	if err != nil || cfg.postgres != "postgres://db" || cfg.listen != ":2" || cfg.runner != "node1:9000" {
		t.Errorf("%+v, %v", cfg, err)
	}
	if _, err := readConfig(nil, func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "POSTGRES_URL") {
		t.Errorf("without a database: %v", err)
	}
}
