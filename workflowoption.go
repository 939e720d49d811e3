package perdure

import (
	"time"
)

// WorkflowOption configures a workflow definition.
type WorkflowOption interface{ applyWorkflow(*workflowOptions) }

type workflowOptions struct {
	uses   []Definition
	pinned bool
	retain time.Duration
	retry  *RetryPolicy
}

type usesOption []Definition

func (u usesOption) applyWorkflow(o *workflowOptions) { o.uses = append(o.uses, u...) }

// Uses makes opening fail, naming it, when an activity the workflow needs has no code here.
func Uses(defs ...Definition) WorkflowOption { return usesOption(defs) }

type pinnedOption struct{}

func (pinnedOption) applyWorkflow(o *workflowOptions) { o.pinned = true }

// Pinned has an execution continued only by processes of the version that began it (embedded.Config.Version), so that no deploy changes the
// code under it. While there is none, it waits and says so. A run that continues as new may begin on any version. A build in which the workflow is not
// pinned any more continues all of them.
func Pinned() WorkflowOption { return pinnedOption{} }

type retainOption time.Duration

func (r retainOption) applyWorkflow(o *workflowOptions) { o.retain = time.Duration(r) }

// Retain keeps the runs of a workflow for d after they have ended, in place of what the nodes keep others for (embedded.Config.Retention): at least
// a minute, or Forever. It counts for runs that end from then on, and not for those that are terminated, because their code has no say in it.
func Retain(d time.Duration) WorkflowOption { return retainOption(d) }

// Forever is the retention time of what is never removed.
const Forever = time.Duration(1<<63 - 1)
