//go:build long

package chaos_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// left are queries, by name, that count rows which the store has only while something is open. When
// nothing is open, each of them must return 0.
var left = map[string]string{
	"open executions":     `select count(*) from perdure.executions where state < 2`,
	"locked entities":     `select count(*) from perdure.entities where locked`,
	"waiting calls":       `select count(*) from perdure.mailbox`,
	"requests":            `select count(*) from perdure.inbox`,
	"timers":              `select count(*) from perdure.timers`,
	"dead tasks":          `select count(*) from perdure.dead`,
	"unconsumed messages": `select count(*) from perdure.messages m left join perdure.cursors c using (to_shard, from_shard) where m.seq > coalesce(c.position, 0)`,
}

// quiesce lets the clients finish, and waits until nothing is open.
func (f *clusterFire) quiesce() {
	f.t.Helper()
	healed := time.Now()
	close(f.crowd.stopping)
	if n3 := f.nodes[2]; n3.comesUp(unstuckWithin) {
		n3.signal(syscall.SIGUSR1)
	}
	idle := make(chan struct{})
	go func() {
		f.crowd.people.Wait()
		close(idle)
	}()

	for {
		open := leftovers(f.t.Context(), f.direct())
		if isClosed(idle) && len(open) == 0 {
			f.say("everything has ended %s after the last fault: %s", time.Since(healed).Round(time.Millisecond), f.crowd.progress())
			return
		}
		if time.Since(healed) > unstuckWithin {
			f.t.Errorf("stuck %s after the last fault: %v; clients wait for %v", unstuckWithin, open, f.crowd.busy())
			f.explainOpen()
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// leftovers counts what is still open in a store, by name.
func leftovers(ctx context.Context, url string) map[string]int {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found := map[string]int{}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return map[string]int{err.Error(): 1}
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for name, sql := range left {
		var n int
		if err := conn.QueryRow(ctx, sql).Scan(&n); err != nil {
			found[name+": "+err.Error()] = 1
		} else if n > 0 {
			found[name] = n
		}
	}
	return found
}

// explainOpen prints why executions do not continue, as the cluster itself explains it.
func (f *clusterFire) explainOpen() {
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	n := 0
	for info, err := range f.apps[0].Executions().List(ctx, `status = "open"`) {
		if err != nil || n == 20 {
			f.say("… %v", err)
			break
		}
		n++
		info, err = f.apps[0].Executions().Describe(ctx, info.Ref)
		f.say("%v is open: %s %v", info.Ref, info.Reason, err)
	}
	for info, err := range f.apps[0].Locks().List(ctx, "") {
		f.say("%v is locked by %v %v", info.Ref, info.LockedBy, err)
	}
	f.say("%s", openExecutions(f.t, f.direct()))
	for _, m := range append(f.nodes, f.hands...) { // SIGQUIT makes a process print its stacks
		m.signal(syscall.SIGQUIT)
		<-m.done
	}
}

// retire shuts all processes down cleanly.
func (f *clusterFire) retire() {
	f.t.Helper()
	for _, m := range append(append([]*member{}, f.hands...), f.nodes...) {
		m.mu.Lock()
		m.signal(syscall.SIGTERM)
		select {
		case <-m.done:
		case <-time.After(time.Minute):
			f.t.Errorf("%s does not end", m.name)
			m.signal(syscall.SIGQUIT)
			<-m.done
		}
		m.mu.Unlock()
	}
	for _, p := range f.past {
		for _, bad := range []string{"panic:", "DATA RACE", "fatal error:"} {
			if strings.Contains(p.text(), bad) && !strings.Contains(p.text(), "SIGQUIT") {
				f.t.Errorf("%s said %q", p.name, bad)
			}
		}
	}
}

// check compares what the clients know with what the store has.
func (f *clusterFire) check() {
	f.t.Helper()
	for i, a := range f.crowd.alarms {
		if i == 20 {
			f.t.Errorf("… and %d more", len(f.crowd.alarms)-i)
			break
		}
		f.t.Errorf("alarm: %s", a)
	}
	f.checkStore()
	f.checkCells()
	if f.t.Failed() {
		return
	}
	b := &bankFire{t: f.t, ledger: bankLedger(f.ledger), accounts: bankAccounts, struck: f.struck}
	b.close(f.direct())
}

// checkStore checks all histories, and that the store has everything that clients know.
func (f *clusterFire) checkStore() {
	f.t.Helper()
	ran := f.ledger.counts(f.t)
	nd, err := node.Open(f.t.Context(), node.Config{URL: f.direct(), ReadOnly: true})
	if err != nil {
		f.t.Fatal(err)
	}
	defer nd.Close()
	b := nd.Backend()
	runs := map[string]int{}
	req := api.ListRequest{Tenant: model.DefaultTenant, AllRuns: true, Limit: 1000}
	for {
		page, err := b.List(f.t.Context(), req)
		if err != nil {
			f.t.Fatal(err)
		}
		for i := range page.Executions {
			d := &page.Executions[i]
			kind := d.Start.Address.Type
			runs[kind]++
			fine := d.Outcome.Status == model.Completed || kind == "move" || kind == "carousel" && d.Outcome.Status == model.Continued
			if !fine {
				f.t.Errorf("%s is %s: %v %v", d.Start.Address, d.Outcome.Status, d.Reasons, d.Outcome.Failure)
			}
			verifyHistory(f.t, b, d, ran)
		}
		if req.Cursor = page.Cursor; req.Cursor == "" {
			break
		}
	}

	told := f.ledger.answers(f.t)
	a := audit{t: f.t, url: f.direct(), ledger: f.ledger}
	for _, line := range told {
		a.answer(b, strings.Fields(line))
	}
	f.say("runs %v; %d bodies; the store has all %d things that clients were told", runs, len(ran), len(told))
}

// checkCells checks that the operations on registers are linearizable.
func (f *clusterFire) checkCells() {
	f.t.Helper()
	byCell := map[int][]porcupine.Operation{}
	for i := range f.crowd.ops {
		o := &f.crowd.ops[i]
		byCell[o.Cell] = append(byCell[o.Cell], porcupine.Operation{ClientId: o.Client, Input: o, Output: o, Call: o.Call, Return: o.Return})
	}
	register := porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			before, o := state.(int), input.(*cellOp)
			switch o.Do {
			case "swap":
				return o.Got == before, o.Then
			case "swapIf":
				if o.OK {
					return before == o.If, o.Then
				}
				return before != o.If, before
			default:
				return o.Got == before, before
			}
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", *input.(*cellOp)) },
	}

	for cell, ops := range byCell {
		verdict, info := porcupine.CheckOperationsVerbose(register, ops, 5*time.Minute)
		if verdict == porcupine.Ok {
			continue
		}
		f.t.Errorf("cell %d is not linearizable (%s): %d operations", cell, verdict, len(ops))
		if err := porcupine.VisualizePath(register, info, filepath.Join(f.dir, "cell"+strconv.Itoa(cell)+".html")); err != nil {
			f.t.Log(err)
		}
	}
	f.say("%d operations on %d registers are linearizable", len(f.crowd.ops), len(byCell))
}
