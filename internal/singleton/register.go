package singleton

import (
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/schedule"
)

// Type is the type of the entity that keeps the registers. Every app and every server has its code.
const Type = model.EntityPrefix + model.ReservedPrefix + "singleton"

// Operation is the only operation of the entity. It applies a Command.
const Operation = "apply"

// Position is a value in which the code of a singleton has noted how far it is. It is stored in the
// form that the payload settings of the app require.
type Position = schedule.Payload

// State is the register of a singleton.
type State struct {
	// Epoch grows whenever a candidate takes the register over.
	Epoch int64 `json:"epoch"`
	// Beat grows with every change within an epoch.
	Beat int64 `json:"beat"`
	// Holder holds the register; empty while it is free.
	Holder string `json:"holder,omitempty"`
	// Process describes the process of the candidate, so that another candidate on the same machine
	// can prove that the process is gone. It may be empty.
	Process string `json:"process,omitempty"`
	// Lease is how long the candidate keeps the register without a renewal.
	Lease time.Duration `json:"lease,omitempty"`
	// Since is when the candidate took over, by its own clock. Only people read it; no decision
	// depends on it.
	Since time.Time `json:"since,omitzero"`
	// Saved is the number of the last saved position in this epoch.
	Saved    int64    `json:"saved,omitempty"`
	Position Position `json:"position,omitzero"`
}

// Verbs of commands.
const (
	VerbClaim   = "claim"
	VerbRenew   = "renew"
	VerbSave    = "save"
	VerbRelease = "release"
)

// Command asks for a change of a register.
type Command struct {
	Verb      string `json:"verb"`
	Candidate string `json:"candidate"`
	// Epoch is the epoch of the candidate. For a claim, Epoch and Beat are the values that the
	// candidate has seen in the register.
	Epoch int64 `json:"epoch"`
	Beat  int64 `json:"beat,omitempty"`

	// Process, Lease and Since are for claims.
	Process string        `json:"process,omitempty"`
	Lease   time.Duration `json:"lease,omitempty"`
	Since   time.Time     `json:"since,omitzero"`

	// Saved numbers the positions of one epoch, so that a delayed command does not overwrite a
	// newer position.
	Saved    int64    `json:"saved,omitempty"`
	Position Position `json:"position,omitzero"`
}

// Answer is the result of a command: whether the command was granted, and the state of the register
// after the command.
type Answer struct {
	Granted bool  `json:"granted"`
	State   State `json:"state"`
}

// Decide applies a command to a register. A command that is not granted changes nothing.
func Decide(s State, c *Command) Answer {
	if c.Verb == VerbClaim {
		if c.Epoch != s.Epoch || c.Beat != s.Beat {
			return Answer{State: s} // the holder has renewed, or another candidate was faster
		}
		s.Epoch, s.Beat, s.Saved = s.Epoch+1, 0, 0
		s.Holder, s.Process, s.Lease, s.Since = c.Candidate, c.Process, c.Lease, c.Since
		return Answer{Granted: true, State: s}
	}

	if c.Epoch != s.Epoch || c.Candidate != s.Holder {
		return Answer{State: s}
	}
	s.Beat++

	switch c.Verb {
	case VerbRenew:
	case VerbSave:
		if c.Saved > s.Saved {
			s.Saved, s.Position = c.Saved, c.Position
		}
	case VerbRelease:
		s.Holder, s.Process = "", ""
	default:
		s.Beat--
		return Answer{State: s}
	}
	return Answer{Granted: true, State: s}
}
