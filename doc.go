// Package perdure provides durable execution: workflows are ordinary functions that survive
// crashes, deploys and failovers.
//
// A workflow gets a [WorkflowCtx]. It puts everything that has an effect into steps ([Do],
// [Activity.Run]), and the engine records the outcome of each step in a journal. When the process
// of a workflow dies, another process runs the function again from its first line. Steps that are
// in the journal return their recorded outcomes, so the function continues where it was.
//
//	var greet = perdure.NewWorkflow("greet", hello)
//
//	func hello(ctx perdure.WorkflowCtx, name string) (string, error) {
//		msg, err := perdure.Do(ctx, "compose", func(context.Context) (string, error) {
//			return "Hello " + name, nil
//		})
//		if err != nil {
//			return "", err
//		}
//		return msg, ctx.Sleep(10 * time.Second)
//	}
//
// The first argument of every operation, such as [Workflow.Start], says which party acts. A
// [Sender] may send (start, signal, resolve), and a [Caller] may also wait for an answer. Ordinary
// code gets a Caller from [App.With]. Workflow code uses its WorkflowCtx, which is a Caller that
// records every call in the journal.
//
// Each step has exactly one outcome in the journal, even after crashes. The body of a step runs at
// least once. Workflow code must be deterministic: with the same journal it must ask for the same
// steps. If it asks for other steps, the engine blocks the execution with a reason and executes
// nothing.
//
// An activity with a queue ([OnQueue]) is a task: any process that has its code and a free slot
// executes it, within limits and behind circuit breakers that all processes share ([Limit],
// [Breaker]). [Activity.Submit] creates a task without a workflow, and a [Schedule] starts
// workflows and tasks at certain times.
//
// Package embedded opens an [App] and runs the engine in this process. [Dial] opens an App that
// uses a server.
package perdure
