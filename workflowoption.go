package perdure

import (
	"time"
)

// WorkflowOption configures a workflow definition: Uses, Pinned, Retain or RetryPolicy.
type WorkflowOption interface{ applyWorkflow(*workflowOptions) }

type workflowOptions struct {
	uses   []Definition
	pinned bool
	retain time.Duration
	retry  *RetryPolicy
}

type usesOption []Definition

func (u usesOption) applyWorkflow(o *workflowOptions) { o.uses = append(o.uses, u...) }

// Uses makes Open fail if this process lacks the code of an activity, entity or workflow that the
// workflow needs. An activity that has a queue needs no code in this process. The error names what
// is missing.
func Uses(defs ...Definition) WorkflowOption { return usesOption(defs) }

type pinnedOption struct{}

func (pinnedOption) applyWorkflow(o *workflowOptions) { o.pinned = true }

// Pinned lets an execution continue only on processes of the version that started it
// (embedded.Config.Version), so that no deploy changes its code. Without such a process the
// execution waits with a reason, and [Executions.Stranded] lists it. The next run after a
// continue-as-new may start on any version. A build in which the workflow is no longer pinned
// continues all executions.
func Pinned() WorkflowOption { return pinnedOption{} }

type retainOption time.Duration

func (r retainOption) applyWorkflow(o *workflowOptions) { o.retain = time.Duration(r) }

// Retain keeps the runs of a workflow for d after their end, instead of embedded.Config.Retention.
// d is at least a minute, or Forever. Retain does not change the retention of runs that have
// already ended. It does not apply to terminated runs, because they end without their code.
func Retain(d time.Duration) WorkflowOption { return retainOption(d) }

// Forever is the retention time of runs that are never removed.
const Forever = time.Duration(1<<63 - 1)
