package rule

import (
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// Allowance is how much of the system one tenant may use. A zero field sets no bound.
type Allowance struct {
	// Open is how many executions of the tenant may be open when a client starts another one.
	Open int64 `json:"open,omitempty"`
	// Starts is how many executions clients may start per second on one node.
	Starts int64 `json:"starts,omitempty"`
	// Weight is the share of the tenant among the tenants whose tasks wait for the same workers.
	// Zero means 1.
	Weight int `json:"weight,omitempty"`
	// Retention is how long the engine keeps closed runs of workflows that do not set a retention
	// themselves. Zero means the setting of the node.
	Retention time.Duration `json:"retention,omitempty"`
}

// Bounds of an Allowance.
const (
	MaxOpen      = 1_000_000_000
	MaxStarts    = 1_000_000
	MaxWeight    = 1000
	MinRetention = time.Second
	MaxRetention = 100 * 365 * 24 * time.Hour
)

// Validate returns an error if a number is out of bounds.
func (a Allowance) Validate() error {
	switch {
	case a.Open < 0 || a.Open > MaxOpen:
		return fault.New(fault.Invalid, "open %d is not between 0 and %d", a.Open, MaxOpen)
	case a.Starts < 0 || a.Starts > MaxStarts:
		return fault.New(fault.Invalid, "starts %d is not between 0 and %d", a.Starts, MaxStarts)
	case a.Weight < 0 || a.Weight > MaxWeight:
		return fault.New(fault.Invalid, "weight %d is not between 0 and %d", a.Weight, MaxWeight)
	case a.Retention != 0 && (a.Retention < MinRetention || a.Retention > MaxRetention):
		return fault.New(fault.Invalid, "retention %v is not between %v and %v", a.Retention, MinRetention, MaxRetention)
	}
	return nil
}
