// Package perdure is durable execution: workflows are ordinary functions that survive crashes,
// deploys and failovers.
//
// A workflow gets a [WorkflowCtx] and does everything that has an effect in steps ([Do],
// [Activity.Run]), whose outcomes are journaled. When its process dies, another one runs the
// function again from its first line; steps that are in the journal return what they returned
// before, and it goes on where it was.
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
// Who speaks comes first in every verb: a [Sender] may send (start, signal, resolve), a [Caller]
// may also wait for an answer. Ordinary code is a Caller by [App.With]; workflow code is one by its
// WorkflowCtx, and then every call is journaled.
//
// What it promises: each step has exactly one outcome in the journal, whatever crashes; its body
// runs at least once. Code of a workflow must be deterministic: the same journal leads it to ask
// for the same steps. When it does not, the execution is blocked with a reason, and nothing is
// executed.
//
// An activity with a queue ([OnQueue]) is a task: any process that has its code and a free slot
// carries it out, within limits and behind circuit breakers that all processes share ([Limit],
// [Breaker]). [Activity.Submit] makes one without a workflow, and a [Schedule] begins workflows and
// tasks at certain times.
//
// An [App] comes from package embedded, which runs the engine in this process.
package perdure
