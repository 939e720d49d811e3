package archtest

import "testing"

// withoutExample are the exported types of the root package that need no example of their own, and
// why.
var withoutExample = map[string]string{
	"Void":           "an empty struct; many examples use it",
	"Definition":     "sealed; every example passes some to Open",
	"Sender":         "sealed; Client, WorkflowCtx and EntityCtx are Senders",
	"Caller":         "sealed; Client and WorkflowCtx are Callers",
	"Target":         "sealed; an Execution or a Ref",
	"Waitable":       "sealed; a Future",
	"Client":         "what App.With returns; every example has one",
	"Metrics":        "what prom.Metrics returns, which has an example",
	"WorkflowOption": "sealed; Uses and Pinned are shown",
	"ActivityOption": "sealed; see Activity",
	"StartOption":    "sealed; see Key, Reuse, ParentClose, Signal.With",
	"CallOption":     "sealed; see Do, RetryPolicy, Signal",
	"EntityOption":   "sealed; see Service",
	"RPCOption":      "sealed; see RPC",
	"EntityRef":      "what Entity.Ref returns, for locks",
	"Event":          "see Histories.Events",
	"Status":         "see Outcome",
	"ErrorKind":      "see ErrorType",

	"Machine":           "see BindMachine, as for all that machines hear and do",
	"Events":            "see BindMachine",
	"Action":            "see BindMachine",
	"Actions":           "see BindMachine",
	"Allowance":         "see Tenant.SetAllowance",
	"ActivityCompleted": "see BindMachine",
	"ActivityFailed":    "see BindMachine",
	"ChildClosed":       "see BindMachine",
	"SignalReceived":    "see BindMachine",
	"TimerFired":        "see BindMachine",
	"PastOption":        "sealed; see Executions.Retry",
	"ScheduleOption":    "sealed; see Schedule, Overlap",
	"ScheduleInfo":      "what Schedule.Describe returns; see Schedule",
	"SingletonOption":   "sealed; SingletonLease and RestartAfter are in docs/singletons.md",
	"SingletonInfo":     "what Singleton.Describe returns; see Singleton",
	"Position":          "see Singleton",
	"TxSource":          "see NewTxActivity",
	"OutboxOption":      "sealed; PollEvery is in docs/transactions.md",
	"DeadGroup":         "see DeadTasks.RequeueAll",
	"DeadQuery":         "see DeadTasks",
	"DeadTask":          "see DeadTasks",
	"FailedAttempt":     "see DeadTasks",
	"RequeueMany":       "see DeadTasks.RequeueAll",
	"RequeueOption":     "sealed; WithInput and RequeueAgain are in docs/dead-tasks.md",
	"LimitRule":         "see Limits",
	"LimitUse":          "see Limits",
	"OtherKeys":         "see Limits",
	"LimitInfo":         "see Limits",
	"BreakerRule":       "see Breakers",
	"BreakerInfo":       "see Breakers",
	"QueueInfo":         "see Queues",
	"EntityInfo":        "see Entities.Describe",
	"EntityFilter":      "see Entities.Find",
	"OperationRecord":   "see OperationLog",
	"MailboxCall":       "see Mailboxes",
	"UnreadSignal":      "see Signals",
	"Locks":             "see WorkflowCtx.Lock, with a timeout",
	"Schedules":         "lists what Schedule.Describe shows; see Schedule",
	"Tasks":             "see Log and StreamItem",
	"LogLine":           "see Log",
	"StreamKind":        "see StreamItem",
	"Change":            "see App.Watch",
	"WatchQuery":        "see App.Watch",
	"TaskTail":          "see Log and StreamItem",
	"DeadLetter":        "what App.DeadLetters lists; docs/transactions.md has it",
}

func TestEveryTypeHasAnExample(t *testing.T) {
	t.Parallel()
	for _, p := range ours(t).packages {
		if p.dir == "." {
			none(t, checkExamples(p, withoutExample))
			return
		}
	}
	t.Error("the root package was not seen")
}

func TestCheckExamples(t *testing.T) {
	t.Parallel()
	m := parse(t, map[string]string{
		"a.go": "// Package a is a.\npackage a\n\ntype Shown int\n\ntype ByMethod int\n\ntype Bare int\n\ntype Listed int\n\ntype hidden int\n",
		"a_test.go": "package a_test\n\nfunc Example() {}\nfunc ExampleShown() {}\nfunc ExampleByMethod_Do() {}\n" +
			"type InTest int\n",
	})
	got := checkExamples(m.packages[0], map[string]string{"Listed": "why", "Shown": "why", "Gone": "why"})
	same(t, got,
		"type Bare has no example: write ExampleBare with its output in an example_*_test.go, or say in internal/archtest/examples_test.go why it needs none",
		"type Gone is listed as not needing an example, and does not exist",
		"type Shown is listed as not needing an example, and has one",
	)
}
