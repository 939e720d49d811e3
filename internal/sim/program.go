package sim

import (
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// tenant is the tenant of everything.
const tenant = model.DefaultTenant

var workflows = [...]string{"alpha", "beta", "gamma"}

// blockKind says what a block of a program does.
type blockKind uint8

const (
	blockStep    blockKind = iota + 1 // a step with failing attempts
	blockSleep                        // a timer
	blockSignal                       // take a signal, perhaps within a time
	blockPromise                      // wait for a promise, perhaps within a time
	blockChild                        // run a child, perhaps within a time
	blockDetach                       // start a child and continue
	blockWatch                        // wait for another execution, perhaps within a time
	blockSend                         // send a signal to another execution, and wait for the answer
	blockRace                         // a step against a timer; the loser is withdrawn
	blockAll                          // two steps and a timer, all of them
	blockNote                         // set state, or mark a version, and continue
	blockLabel                        // set or remove a label
	blockTask                         // a task, perhaps within a time
	// send an update to another execution and wait for its answer, perhaps within a time
	blockCall
	blockOperate // call an entity, perhaps within a time
	blockTell    // call an entity without waiting
	blockSection // lock accounts, perhaps within a time, and call them
)

var blockNames = [...]string{
	blockStep: "step", blockSleep: "sleep", blockSignal: "signal", blockPromise: "promise", blockChild: "child",
	blockDetach: "detach", blockWatch: "watch", blockSend: "send", blockRace: "race", blockAll: "all", blockNote: "note",
	blockLabel: "label", blockCall: "call", blockTask: "task", blockOperate: "operate", blockTell: "tell", blockSection: "section",
}

// block is one step of a program.
type block struct {
	kind     blockKind
	fails    int // attempts of the (first) step that fail
	attempts int // the maximum number of attempts
	took     int64
	backoff  int64
	wait     int64 // of the timer or deadline; 0 for none
	name     string
	bit      uint8 // of the promise
	version  bool  // a note that marks a version; otherwise it sets state
	named    bool  // a signal with a request id, sent once by all runs of an execution
	slow     bool  // a call that its receiver answers late
	target   model.Address
	program  int // of the child
	policy   model.ParentClosePolicy
	reuse    model.ReusePolicy
	errand   errand // of a task

	deeds    [2]deed          // of an entity, without their ids; the second one is of a section
	names    [2]string        // their operations
	targets  [2]model.Address // the entities that they call
	locks    []model.Address  // of a section
	nap      int64            // between its two calls
	together bool             // both calls at once
	keeps    bool             // the section ends with the run
	tidy     bool             // the section ends first when the run is canceled in it
}

// program is a workflow as data. It ends by completing, failing or continuing as new.
type program struct {
	index   int
	blocks  []block
	cleanup bool // a step after a cancel request
	fails   bool
	retain  time.Duration // its own retention; 0 means the retention of the lanes
	// ids of the asks, by block and ask.
	ids [maxBlocks + 1][maxAsks]string
}

const (
	maxBlocks = 6
	maxAsks   = 6
	// cleanupBlock is the place of the step after a cancel request.
	cleanupBlock = maxBlocks
)

var (
	askIDs      = makeAskIDs()
	signalNames = [...]string{"s0", "s1"}
	promises    = [...]string{"p0", "p1"}
	stateNames  = [...]string{"v0", "v1"}
)

func makeAskIDs() (ids [maxBlocks + 1][maxAsks]string) {
	for b := range ids {
		for a := range ids[b] {
			ids[b][a] = fmt.Sprintf("b%d.%d", b, a)
		}
	}
	return ids
}

// parseAsk decodes the id of an ask.
func parseAsk(id string) (b, a int, ok bool) {
	if len(id) != 4 || id[0] != 'b' || id[2] != '.' {
		return 0, 0, false
	}
	b, a = int(id[1]-'0'), int(id[3]-'0')
	return b, a, b >= 0 && b <= maxBlocks && a >= 0 && a < maxAsks
}

// input encodes the program to run, how often it continues as new, and the count so far.
func input(program, cans, count int) model.Payload {
	return model.Payload{Data: []byte{byte(program), byte(cans), byte(count >> 8), byte(count)}}
}

func parseInput(p model.Payload) (program, cans, count int, ok bool) {
	if len(p.Data) != 4 {
		return 0, 0, 0, false
	}
	return int(p.Data[0]), int(p.Data[1]), int(p.Data[2])<<8 | int(p.Data[3]), true
}

// drawPrograms makes the programs: the first ones for children, which do not wait for other
// executions, the others for roots.
func (s *Sim) drawPrograms() {
	n := 3
	for i := range n {
		s.programs = append(s.programs, s.drawProgram(i, false))
	}
	for i := range 4 {
		s.programs = append(s.programs, s.drawProgram(n+i, true))
	}
}

func (s *Sim) drawProgram(index int, root bool) *program {
	p := &program{index: index, cleanup: s.chance(0.4), fails: s.chance(0.15), ids: askIDs}
	p.retain = s.drawRetain()
	for range 1 + s.pick(maxBlocks-1) {
		p.blocks = append(p.blocks, s.drawBlock(root))
	}
	return p
}

func (s *Sim) drawBlock(root bool) block {
	kinds := []blockKind{blockStep, blockStep, blockStep, blockSleep, blockSignal, blockPromise, blockRace, blockAll, blockNote}
	if s.tasks {
		kinds = append(kinds, blockTask, blockTask, blockTask, blockTask)
	}

	if root {
		kinds = append(kinds, blockChild, blockChild, blockDetach, blockWatch, blockSend, blockSend, blockCall, blockCall)
		if s.labels {
			kinds = append(kinds, blockLabel, blockLabel)
		}
	}

	b := block{kind: kinds[s.pick(len(kinds))]}
	b.took, b.backoff, b.attempts = oneOf(s, 0, s.between(0, 3000), s.between(0, 60*millisecond)), s.between(0, 40*millisecond), 1+s.pick(3)
	if s.chance(0.3) {
		b.fails = 1 + s.pick(3)
	}
	within := oneOf(s, 0, 0, s.between(1, 20)*millisecond, s.between(50, 400)*millisecond)
	if s.entities && s.chance(0.3) {
		b.kind = oneOf(s, blockOperate, blockOperate, blockTell, blockSection, blockSection)
	}

	switch b.kind {
	case blockSleep, blockRace, blockAll:
		b.wait = oneOf(s, s.between(0, 10)*millisecond, s.between(1, 400)*millisecond)
	case blockSignal:
		b.name, b.wait = oneOf(s, signalNames[:]...), within
	case blockPromise:
		i := s.pick(len(promises))
		b.name, b.bit, b.wait = promises[i], 1<<i, within
	case blockChild, blockDetach:
		b.target, b.program = s.childAddress(), s.pick(3)
		if s.chance(0.3) {
			b.target = model.Address{} // a child that only this run has
		}
		b.policy, b.reuse = oneOf(s, model.CancelChild, model.AbandonChild), oneOf(s, model.ReturnExisting, model.ReturnExisting, model.ReuseIfFailed, model.ReuseAlways)
		if b.kind == blockChild {
			b.wait = within
		}
	case blockWatch:
		// a timeout ends the wait, so that two runs that watch each other do not deadlock
		b.target, b.wait = s.address(), max(within, 5*millisecond)
	case blockSend, blockLabel:
		// a label has the name of a signal and the key of an address as its value
		b.target, b.name, b.named = s.address(), oneOf(s, signalNames[:]...), s.chance(0.3)
	case blockCall:
		b.target, b.slow, b.wait = oneOf(s, s.address(), s.address(), s.childAddress()), s.chance(0.4), within
		if b.slow {
			// a timeout ends the wait, so that two runs that wait for each other do not deadlock
			b.wait = max(b.wait, 5*millisecond)
		}
	case blockNote:
		b.name, b.version = oneOf(s, stateNames[:]...), s.chance(0.3)
	case blockTask:
		b.errand, b.wait = s.drawErrand(), within
	case blockOperate, blockTell:
		b.targets[0], b.wait = accountAddress(s.pick(s.plan.accounts)), within
		b.names[0], b.deeds[0] = s.newDeed(root)
		if s.chance(0.15) {
			b.targets[0], b.names[0] = deskAddress(s.pick(s.plan.desks)), oneOf(s, doEcho, doForward)
		}
		if b.kind == blockTell {
			b.wait = 0
		}
	case blockSection:
		s.drawSection(&b, root, within)
	case blockStep:
	}

	return b
}

// address draws one of the roots.
func (s *Sim) address() model.Address { return rootAddress(s.pick(s.plan.keys)) }

func rootAddress(i int) model.Address {
	return model.Address{Tenant: tenant, Type: workflows[i%len(workflows)], Key: rootKeys[i]}
}

func (s *Sim) childAddress() model.Address {
	i := s.pick(s.plan.children)
	return model.Address{Tenant: tenant, Type: workflows[(i+1)%len(workflows)], Key: childKeys[i]}
}

var (
	rootKeys  = [...]string{"k0", "k1", "k2", "k3", "k4", "k5", "k6"}
	childKeys = [...]string{"c0", "c1", "c2"}
)

// label returns the label that a block sets. The label of the first key is removed.
func (b *block) label() model.Label {
	if b.target.Key == rootKeys[0] {
		return model.Label{Name: b.name}
	}
	return model.Label{Name: b.name, Value: b.target.Key}
}

// childOf returns the target of a child block of a run: a shared child, or one that only this run
// has.
func (b *block) childOf(start *model.Start, index int) model.Address {
	if !b.target.IsZero() {
		return b.target
	}
	return model.Address{Tenant: tenant, Type: workflows[index%len(workflows)], Key: start.Address.Key + "/" + askIDs[index][0]}
}
