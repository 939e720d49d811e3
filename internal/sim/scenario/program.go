package scenario

import (
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
)

// ForkKeys are the keys of forks and imports.
var ForkKeys = [...]string{"f0", "f1", "f2", "f3"}

// Versions are the versions of workers that pin workflows.
var Versions = [...]string{"one", "two"}

// Unpinned is the version of a build that pins no workflow: it continues every run.
const Unpinned = "later"

// Tenant is the tenant of everything.
const Tenant = model.DefaultTenant

// Workflows are the types of workflows.
var Workflows = [...]string{"alpha", "beta", "gamma"}

// BlockKind says what a block of a program does.
type BlockKind uint8

// The kinds of blocks.
const (
	BlockStep    BlockKind = iota + 1 // a step with failing attempts
	BlockSleep                        // a timer
	BlockSignal                       // take a signal, perhaps within a time
	BlockPromise                      // wait for a promise, perhaps within a time
	BlockChild                        // run a child, perhaps within a time
	BlockDetach                       // start a child and continue
	BlockWatch                        // wait for another execution, perhaps within a time
	BlockSend                         // send a signal to another execution, and wait for the answer
	BlockRace                         // a step against a timer; the loser is withdrawn
	BlockAll                          // two steps and a timer, all of them
	BlockNote                         // set state, or mark a version, and continue
	BlockLabel                        // set or remove a label
	BlockTask                         // a task, perhaps within a time
	BlockCall                         // update another execution and wait for its answer
	BlockOperate                      // call an entity, perhaps within a time
	BlockTell                         // call an entity without waiting
	BlockSection                      // lock accounts, perhaps within a time, and call them
)

// BlockNames are the names of the kinds of blocks.
var BlockNames = [...]string{
	BlockStep: "step", BlockSleep: "sleep", BlockSignal: "signal", BlockPromise: "promise", BlockChild: "child",
	BlockDetach: "detach", BlockWatch: "watch", BlockSend: "send", BlockRace: "race", BlockAll: "all", BlockNote: "note",
	BlockLabel: "label", BlockCall: "call", BlockTask: "task", BlockOperate: "operate", BlockTell: "tell", BlockSection: "section",
}

// Block is one element of a program, such as a step, a timer or a section.
type Block struct {
	Kind     BlockKind
	Fails    int // how many attempts of the (first) step fail
	Attempts int // the maximum number of attempts
	Took     int64
	Backoff  int64
	wait     int64 // the length of the timer or deadline; 0 for none
	Name     string
	bit      uint8 // the bit of the promise
	version  bool  // a note that marks a version
	remark   bool  // a note that the engine only stores; otherwise it sets state
	Named    bool  // a signal whose request id is the same in all runs of an execution
	Slow     bool  // a call that its receiver answers late
	Target   model.Address
	Program  int // the program of the child
	Policy   model.ParentClosePolicy
	Reuse    model.ReusePolicy
	Errand   errand // the errand of a task

	Deeds    [2]deed          // calls of entities, without ids; only a section has two
	Names    [2]string        // the operations of the deeds
	Targets  [2]model.Address // the entities that the deeds call
	Locks    []model.Address  // the entities that a section locks
	nap      int64            // the pause between the two calls of a section
	together bool             // both calls at the same time
	keeps    bool             // the section ends with the run
	tidy     bool             // a cancel inside the section first ends the section
}

// program is a workflow as data. It ends by completing, failing or continuing as new.
type program struct {
	index   int
	Blocks  []Block
	cleanup bool // the program runs a step after a cancel request
	fails   bool
	Retain  time.Duration // its own retention; 0 means the retention of the lanes
	// Ids are the ids of the asks, by block and ask.
	Ids [MaxBlocks + 1][MaxAsks]string
}

// The size of a program.
const (
	MaxBlocks = 6
	MaxAsks   = 6
	// CleanupBlock is the place of the step after a cancel request.
	CleanupBlock = MaxBlocks
)

// Names that programs use.
var (
	askIDs      = makeAskIDs()
	SignalNames = [...]string{"s0", "s1"}
	Promises    = [...]string{"p0", "p1"}
	stateNames  = [...]string{"v0", "v1"}
)

func makeAskIDs() (ids [MaxBlocks + 1][MaxAsks]string) {
	for b := range ids {
		for a := range ids[b] {
			ids[b][a] = fmt.Sprintf("b%d.%d", b, a)
		}
	}
	return ids
}

// ParseAsk decodes the id of an ask.
func ParseAsk(id string) (b, a int, ok bool) {
	if len(id) != 4 || id[0] != 'b' || id[2] != '.' {
		return 0, 0, false
	}
	b, a = int(id[1]-'0'), int(id[3]-'0')
	return b, a, b >= 0 && b <= MaxBlocks && a >= 0 && a < MaxAsks
}

// Input encodes the program to run, how often it continues as new, and the count so far.
func Input(program, cans, count int) model.Payload {
	return model.Payload{Data: []byte{byte(program), byte(cans), byte(count >> 8), byte(count)}}
}

// ParseInput decodes the input of a run.
func ParseInput(p model.Payload) (program, cans, count int, ok bool) {
	if len(p.Data) != 4 {
		return 0, 0, 0, false
	}
	return int(p.Data[0]), int(p.Data[1]), int(p.Data[2])<<8 | int(p.Data[3]), true
}

// drawPrograms makes the programs. The first programs are for children, and do not wait for other
// executions. The other programs are for roots, which are the executions that users start.
func (s *Scenario) drawPrograms() {
	n := 3
	for i := range n {
		s.Programs = append(s.Programs, s.drawProgram(i, false))
	}
	for i := range 4 {
		s.Programs = append(s.Programs, s.drawProgram(n+i, true))
	}
}

func (s *Scenario) drawProgram(index int, root bool) *program {
	p := &program{index: index, cleanup: s.Chance(0.4), fails: s.Chance(0.15), Ids: askIDs}
	p.Retain = s.drawRetain()
	for range 1 + s.Pick(MaxBlocks-1) {
		p.Blocks = append(p.Blocks, s.drawBlock(root))
	}
	return p
}

func (s *Scenario) drawBlock(root bool) Block {
	kinds := []BlockKind{BlockStep, BlockStep, BlockStep, BlockSleep, BlockSignal, BlockPromise, BlockRace, BlockAll, BlockNote}
	if s.Has(Tasks) {
		kinds = append(kinds, BlockTask, BlockTask, BlockTask, BlockTask)
	}

	if root {
		kinds = append(kinds, BlockChild, BlockChild, BlockDetach, BlockWatch, BlockSend, BlockSend, BlockCall, BlockCall)
		if s.Has(Labels) {
			kinds = append(kinds, BlockLabel, BlockLabel)
		}
	}

	b := Block{Kind: kinds[s.Pick(len(kinds))]}
	b.Took, b.Backoff, b.Attempts = kernel.OneOf(s, 0, s.Between(0, 3000), s.Between(0, 60*kernel.Millisecond)), s.Between(0, 40*kernel.Millisecond), 1+s.Pick(3)
	if s.Chance(0.3) {
		b.Fails = 1 + s.Pick(3)
	}
	within := kernel.OneOf(s, 0, 0, s.Between(1, 20)*kernel.Millisecond, s.Between(50, 400)*kernel.Millisecond)
	if s.Has(Entities) && s.Chance(0.3) {
		b.Kind = kernel.OneOf(s, BlockOperate, BlockOperate, BlockTell, BlockSection, BlockSection)
	}

	switch b.Kind {
	case BlockSleep, BlockRace, BlockAll:
		b.wait = kernel.OneOf(s, s.Between(0, 10)*kernel.Millisecond, s.Between(1, 400)*kernel.Millisecond)
	case BlockSignal:
		b.Name, b.wait = kernel.OneOf(s, SignalNames[:]...), within
	case BlockPromise:
		i := s.Pick(len(Promises))
		b.Name, b.bit, b.wait = Promises[i], 1<<i, within
	case BlockChild, BlockDetach:
		b.Target, b.Program = s.ChildAddress(), s.Pick(3)
		if s.Chance(0.3) {
			b.Target = model.Address{} // a child that only this run has
		}
		b.Policy, b.Reuse = kernel.OneOf(s, model.CancelChild, model.AbandonChild), kernel.OneOf(s, model.ReturnExisting, model.ReturnExisting, model.ReuseIfFailed, model.ReuseAlways)
		if b.Kind == BlockChild {
			b.wait = within
		}
	case BlockWatch:
		// a timeout ends the wait, so that two runs that watch each other do not deadlock
		b.Target, b.wait = s.Address(), max(within, 5*kernel.Millisecond)
	case BlockSend, BlockLabel:
		// a label has the name of a signal and the key of an address as its value
		b.Target, b.Name, b.Named = s.Address(), kernel.OneOf(s, SignalNames[:]...), s.Chance(0.3)
	case BlockCall:
		b.Target, b.Slow, b.wait = kernel.OneOf(s, s.Address(), s.Address(), s.ChildAddress()), s.Chance(0.4), within
		if b.Slow {
			// a timeout ends the wait, so that two runs that wait for each other do not deadlock
			b.wait = max(b.wait, 5*kernel.Millisecond)
		}
	case BlockNote:
		b.Name, b.version, b.remark = kernel.OneOf(s, stateNames[:]...), s.Chance(0.3), s.Chance(0.3)
	case BlockTask:
		b.Errand, b.wait = s.drawErrand(), within
	case BlockOperate, BlockTell:
		b.Targets[0], b.wait = AccountAddress(s.Pick(s.Plan.Accounts)), within
		b.Names[0], b.Deeds[0] = s.NewDeed(root)
		if s.Chance(0.15) {
			b.Targets[0], b.Names[0] = DeskAddress(s.Pick(s.Plan.Desks)), kernel.OneOf(s, DoEcho, DoForward)
		}
		if b.Kind == BlockTell {
			b.wait = 0
		}
	case BlockSection:
		s.drawSection(&b, root, within)
	case BlockStep:
	}

	return b
}

// Address draws one of the roots.
func (s *Scenario) Address() model.Address { return s.rootAddress(s.Pick(s.Plan.Keys)) }

func (s *Scenario) rootAddress(i int) model.Address {
	return model.Address{Tenant: Tenant, Type: s.workflow(i), Key: RootKeys[i]}
}

// ChildAddress draws the address of a child.
func (s *Scenario) ChildAddress() model.Address {
	i := s.Pick(s.Plan.children)
	return model.Address{Tenant: Tenant, Type: s.workflow(i + 1), Key: childKeys[i]}
}

// Keys of executions. Users start executions with the keys in RootKeys. Programs start children
// with the keys in childKeys.
var (
	RootKeys  = [...]string{"k0", "k1", "k2", "k3", "k4", "k5", "k6"}
	childKeys = [...]string{"c0", "c1", "c2"}
)

// Label returns the label that a block sets. If the target of the block has the first key, the
// block removes the label instead.
func (b *Block) Label() model.Label {
	if b.Target.Key == RootKeys[0] {
		return model.Label{Name: b.Name}
	}
	return model.Label{Name: b.Name, Value: b.Target.Key}
}

// ChildOf returns the child that a block of a run starts: a child that several runs share, or a
// child that only this run has.
func (b *Block) ChildOf(start *model.Start, index int) model.Address {
	if !b.Target.IsZero() {
		return b.Target
	}
	return model.Address{Tenant: Tenant, Type: Workflows[index%len(Workflows)], Key: start.Address.Key + "/" + askIDs[index][0]}
}
