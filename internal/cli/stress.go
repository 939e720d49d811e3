package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
)

// stressFlags are the size and the kind of the load.
type stressFlags struct {
	concurrent, total, workers int
	failures                   float64
	latency                    time.Duration
}

// stressReport is the result of a stress run.
type stressReport struct {
	Workflows  int     `json:"workflows"`
	Failed     int     `json:"failed"`
	Refused    int     `json:"refused"` // workflows that the engine refused to start or to await
	Seconds    float64 `json:"seconds"`
	PerSecond  float64 `json:"per_second"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	FailedPart float64 `json:"failed_percent"`
	Concurrent int     `json:"concurrent"`
	Workers    int     `json:"workers"`
}

func newStress(o *options) *cobra.Command {
	f := stressFlags{}
	cmd := &cobra.Command{
		Use: "stress", Short: "Run many workflows with one task each and report throughput and latency",
		Long: `Run many workflows that schedule one task each, with the failures and the latency that you choose, and report throughput, latency and failures.

The command leaves executions of the workflow "stress" and dead tasks in the store. Use a separate store that you can delete. In another store they stay until their
retention ends, or until you run perdure workflow delete --query 'workflow = "stress"' --yes and perdure dlq purge --activity stress-task --yes. On PostgreSQL a
program must be running for that.`,
		Example: `  perdure stress --store file:/tmp/stress.db --total 1000
  perdure stress --store postgres://localhost/stress --total 20000 --concurrent 200 --workers 400
  perdure stress --store postgres://localhost/stress --failure-rate 0.01 --latency 5ms`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.concurrent < 1 || f.total < 1 || f.workers < 1:
				return fault.New(fault.Invalid, "--concurrent, --total and --workers must be >= 1")
			case !(f.failures >= 0 && f.failures <= 1):
				return fault.New(fault.Invalid, "--failure-rate is %v, must be from 0 to 1", f.failures)
			case f.latency < 0:
				return fault.New(fault.Invalid, "--latency is %s, must be >= 0", f.latency)
			}
			r, err := o.stress(cmd.Context(), &f)
			if err != nil {
				return err
			}
			return o.printStress(r)
		},
	}
	cmd.Flags().IntVar(&f.concurrent, "concurrent", 64, "number of workflows at the same time")
	cmd.Flags().IntVar(&f.total, "total", 1000, "number of workflows in all")
	cmd.Flags().Float64Var(&f.failures, "failure-rate", 0, "share of tasks that fail, from 0 to 1")
	cmd.Flags().DurationVar(&f.latency, "latency", 0, "how long a task takes")
	cmd.Flags().IntVar(&f.workers, "workers", 100, "number of tasks that run at once")
	return cmd
}

// printStress prints the report.
func (o *options) printStress(r *stressReport) error {
	if o.structured() {
		return o.json(r)
	}
	return o.table("", [][]string{
		{"Workflows", fmt.Sprint(r.Workflows)},
		{"Took", fmt.Sprintf("%.2f s", r.Seconds)},
		{"Throughput", fmt.Sprintf("%.0f per second", r.PerSecond)},
		{"Latency", fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", r.P50, r.P99)},
		{"Failed", fmt.Sprintf("%d (%.2f %%)", r.Failed, r.FailedPart)},
		{"Refused", fmt.Sprint(r.Refused)},
	})
}

// stressTask is the input of a task.
type stressTask struct {
	Fails bool          `json:"fails"`
	Takes time.Duration `json:"takes"`
}

var errStress = errors.New("the task failed on purpose")

func (o *options) stress(ctx context.Context, f *stressFlags) (*stressReport, error) {
	task := perdure.NewActivity("stress-task", func(ctx context.Context, t stressTask) (perdure.Void, error) {
		if t.Takes > 0 {
			select {
			case <-time.After(t.Takes):
			case <-ctx.Done():
				return perdure.Void{}, ctx.Err()
			}
		}
		if t.Fails {
			return perdure.Void{}, perdure.Permanent(errStress)
		}
		return perdure.Void{}, nil
	}, perdure.OnQueue("stress"))

	flow := perdure.NewWorkflow("stress", func(ctx perdure.WorkflowCtx, t stressTask) (perdure.Void, error) { return task.Run(ctx, t) })
	if remote.IsURL(o.store) {
		return nil, fault.New(fault.Invalid, "stress needs a store, and %s is a server", o.store)
	}
	n, err := o.connect(ctx, node.Config{URL: o.store, Schema: o.schema, Databases: o.databaseURLs(), Log: o.log(), Version: Version()}, o.own())
	if err != nil {
		return nil, err
	}
	app, err := attach.Open(ctx, attach.Config{
		Backend: n.Backend(), Tenant: o.tenant, Logger: o.log(), Tasks: perdure.TaskConfig{Slots: f.workers}, OnClose: n.Close,
	}, task, flow)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}

	r := &stressReport{Concurrent: f.concurrent, Workers: f.workers}
	run := uuid.NewString()[:8]
	var (
		mu   sync.Mutex
		took = make([]time.Duration, 0, f.total)
		wg   sync.WaitGroup
		next = make(chan int)
		last error
	)

	began := time.Now()
	for range f.concurrent {
		wg.Go(func() {
			for i := range next {
				at := time.Now()
				_, err := flow.Run(app.With(ctx), stressTask{rand.Float64() < f.failures, f.latency}, perdure.RawKey(fmt.Sprintf("%s-%d", run, i)))
				d := time.Since(at)
				var failure *perdure.RemoteError
				mu.Lock()
				switch {
				case err == nil:
				case errors.As(err, &failure):
					r.Failed++
				default:
					r.Refused++
					last = err
				}
				took = append(took, d)
				mu.Unlock()
			}
		})
	}

	for i := 0; i < f.total && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	wg.Wait()
	r.Seconds = time.Since(began).Seconds()
	if err := app.Close(); err != nil {
		return nil, err
	}

	if r.Refused == len(took) {
		// The user stopped the command before the first workflow started.
		last = cmp.Or(last, context.Cause(ctx))
		return nil, fault.New(fault.KindOf(last), "no workflow ran: %w", last)
	}

	slices.Sort(took)
	at := func(share float64) float64 {
		return float64(took[min(int(share*float64(len(took))), len(took)-1)].Microseconds()) / 1000
	}
	r.Workflows, r.P50, r.P99 = len(took), at(0.5), at(0.99)
	r.PerSecond, r.FailedPart = float64(len(took))/r.Seconds, 100*float64(r.Failed)/float64(len(took))

	return r, nil
}
