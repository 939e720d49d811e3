package model

import (
	"slices"
	"strings"
)

// ChangeClass says what a change is about.
type ChangeClass string

// Classes of changes.
const (
	ClassExecution ChangeClass = "execution" // a run of a workflow
	ClassTask      ChangeClass = "task"      // a task, with or without a workflow, open or dead
	ClassEntity    ChangeClass = "entity"    // the state or the lock of an entity
	ClassWorker    ChangeClass = "worker"    // code that a live process can run
	ClassSetting   ChangeClass = "setting"   // a limit, a breaker, a paused queue, an allowance
)

// ChangeClasses are all classes.
var ChangeClasses = []ChangeClass{ClassExecution, ClassTask, ClassEntity, ClassWorker, ClassSetting}

// ChangeKind says what has happened. For the end of a run, the kind is the word of the run's
// status, such as "completed".
type ChangeKind string

// Kinds of changes.
const (
	ChangeStarted         ChangeKind = "started"
	ChangeProgressed      ChangeKind = "progressed" // the history has grown up to Seq
	ChangeWaiting         ChangeKind = "waiting"    // waits and is not in memory; Reason says why
	ChangePaused          ChangeKind = "paused"     // an operator paused a run or a queue
	ChangeResumed         ChangeKind = "resumed"
	ChangeCancelRequested ChangeKind = "cancel_requested"
	ChangeBlocked         ChangeKind = "blocked" // only a change by a person helps; Reason says why
	ChangeRemoved         ChangeKind = "removed"

	ChangeScheduled ChangeKind = "scheduled" // a task waits for a worker
	ChangeClaimed   ChangeKind = "claimed"   // a worker executes an attempt
	ChangeReturned  ChangeKind = "returned"  // a worker gave the task back; no attempt is used up
	ChangeRetrying  ChangeKind = "retrying"  // an attempt has failed; another one follows
	ChangeCompleted ChangeKind = "completed"
	ChangeFailed    ChangeKind = "failed"
	ChangeDead      ChangeKind = "dead" // the task is kept for a person to look at
	ChangeRequeued  ChangeKind = "requeued"
	ChangeUndone    ChangeKind = "requeue_undone"

	ChangeCreated ChangeKind = "created"
	ChangeChanged ChangeKind = "changed"
	ChangeJoined  ChangeKind = "joined"
	ChangeLeft    ChangeKind = "left"
)

// Change is something that has become durable, for callers that watch. It has no payload. Nodes
// send each other the changes of executions, tasks and entities, so the numbers of the fields must
// not change.
type Change struct {
	Class ChangeClass `cbor:"1,keyasint"`
	Kind  ChangeKind  `cbor:"2,keyasint"`
	// Address is the address of the execution, the task or the entity. A task of a workflow has the
	// address of that workflow's execution. The address of a worker or a setting has only the
	// tenant.
	Address Address `cbor:"3,keyasint"`
	Run     RunID   `cbor:"4,keyasint,omitzero"`
	// Task is the step of a task. Name is the activity of a task, the name of a worker, or the name
	// of a setting.
	Task string `cbor:"5,keyasint,omitempty"`
	Name string `cbor:"6,keyasint,omitempty"`
	// Of is the kind of a setting, or the type of code of a worker.
	Of string `cbor:"7,keyasint,omitempty"`
	// Queue is the queue of a task. It is empty if the change does not name it.
	Queue string `cbor:"8,keyasint,omitempty"`
	// Status is the status of the run after the change. It is zero if the change is not about a
	// run.
	Status Status `cbor:"9,keyasint,omitempty"`
	// Reason says why the run waits or is blocked.
	Reason ReasonCode `cbor:"10,keyasint,omitempty"`
	// Locked says that a section holds the lock of an entity.
	Locked bool `cbor:"11,keyasint,omitempty"`
	// Seq is the position of the last event of the run. It is 0 if the change does not name it.
	Seq  int64  `cbor:"12,keyasint,omitempty"`
	Node NodeID `cbor:"-"` // node of a worker
	At   Time   `cbor:"13,keyasint,omitempty"`
}

// Size estimates the bytes that the change takes in memory.
func (c *Change) Size() int {
	return 256 + len(c.Address.Tenant) + len(c.Address.Type) + len(c.Address.Key) + len(c.Task) + len(c.Name) + len(c.Of) + len(c.Queue)
}

// ChangeFilter selects changes. All conditions must hold; an empty field is no condition.
type ChangeFilter struct {
	Classes []ChangeClass
	// Types are types of addresses. TaskPrefix and the name of an activity select the tasks of that
	// activity.
	Types []string
	Key   string
	// Statuses selects changes after which the run has one of these statuses.
	Statuses []Status
	// Kinds selects changes of these kinds.
	Kinds []ChangeKind
	// Queues selects changes of tasks of these queues, and of the queues themselves. It also
	// selects changes of tasks that do not name their queue. So the watcher may get changes of
	// other queues, but misses none of its own.
	Queues []string
}

// Matches reports whether the filter selects a change.
func (f *ChangeFilter) Matches(c *Change) bool {
	if len(f.Classes) > 0 && !slices.Contains(f.Classes, c.Class) {
		return false
	}
	if len(f.Types) > 0 && !slices.ContainsFunc(f.Types, c.hasType) {
		return false
	}
	if len(f.Kinds) > 0 && !slices.Contains(f.Kinds, c.Kind) {
		return false
	}
	if len(f.Queues) > 0 && !c.isAbout(f.Queues) {
		return false
	}
	return (f.Key == "" || f.Key == c.Address.Key) && (len(f.Statuses) == 0 || slices.Contains(f.Statuses, c.Status))
}

// isAbout reports whether the change may be about one of the queues.
func (c *Change) isAbout(queues []string) bool {
	switch c.Class {
	case ClassTask:
		return c.Queue == "" || slices.Contains(queues, c.Queue)
	case ClassSetting:
		return c.Of == RefQueue && slices.Contains(queues, c.Name)
	case ClassExecution, ClassEntity, ClassWorker:
	}
	return false
}

// hasType reports whether the change is about the type of an address, or about an activity.
func (c *Change) hasType(of string) bool {
	if of == c.Address.Type {
		return true
	}
	activity, ok := strings.CutPrefix(of, TaskPrefix)
	return ok && c.Class == ClassTask && activity == c.Name
}

// ChangePage is the next part of a feed of changes.
type ChangePage struct {
	Changes []Change
	// Cursor is the place after the last change of the page. A later watch continues there.
	Cursor string
	// Gap says that the watcher has missed changes before this page. It must read its lists again,
	// and can then continue with the changes that follow.
	Gap bool
	// Partial says that the feed lacks the changes of some executions and entities. Another process
	// may own them, and this node does not get the changes of that process.
	Partial bool
}
