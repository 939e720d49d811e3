package breaker

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// version is the version of the stored form. A build refuses a version that it does not know,
// because it could lose a part of the row when it writes the row back.
const version = 1

// stored is the row of a breaker.
type stored struct {
	Version    int          `cbor:"1,keyasint"`
	Config     Config       `cbor:"2,keyasint"`
	State      State        `cbor:"3,keyasint,omitempty"`
	Generation int64        `cbor:"4,keyasint"`
	Since      model.Time   `cbor:"5,keyasint,omitempty"`
	Until      model.Time   `cbor:"6,keyasint,omitempty"`
	Why        string       `cbor:"7,keyasint,omitempty"`
	Held       model.Time   `cbor:"8,keyasint,omitempty"`
	HeldWhy    string       `cbor:"9,keyasint,omitempty"`
	Failures   []model.Time `cbor:"10,keyasint,omitempty"`
	Buckets    []bucket     `cbor:"11,keyasint,omitempty"`
	Probes     []slot       `cbor:"12,keyasint,omitempty"`
	LastProbe  int64        `cbor:"13,keyasint,omitempty"`
	Successes  int          `cbor:"14,keyasint,omitempty"`
	Now        model.Time   `cbor:"15,keyasint,omitempty"`
	Heard      []heard      `cbor:"16,keyasint,omitempty"`
}

// Encode returns the stored form. It includes the current counts, so that they survive when the
// owner changes in an orderly way.
func (b *Breaker) Encode() ([]byte, error) {
	s := stored{
		Version: version, Config: b.config, State: b.state, Generation: b.generation, Since: b.since, Until: b.until, Why: b.why,
		Held: b.held, HeldWhy: b.heldWhy, Probes: b.probes, LastProbe: b.lastProbe, Successes: b.successes, Now: b.now, Heard: b.heard,
	}
	s.Failures = append(append(s.Failures, b.window.failed[b.window.next:]...), b.window.failed[:b.window.next]...)
	for _, k := range b.window.buckets {
		if k.Calls > 0 {
			s.Buckets = append(s.Buckets, k)
		}
	}
	return cbor.Marshal(s)
}

// Decode reads the stored form.
func Decode(row []byte) (*Breaker, error) {
	var s stored
	if err := cbor.Unmarshal(row, &s); err != nil {
		return nil, fault.New(fault.Corrupt, "breaker: %w", err)
	}
	if s.Version != version {
		return nil, fault.New(fault.Corrupt, "breaker: stored by version %d, this build knows version %d", s.Version, version)
	}

	if err := s.check(); err != nil {
		return nil, fault.New(fault.Corrupt, "breaker: %w", err)
	}
	b := New(s.Config, s.Now)
	b.state, b.generation, b.since, b.until, b.why = s.State, s.Generation, s.Since, s.Until, s.Why
	b.held, b.heldWhy, b.probes, b.lastProbe, b.successes = s.Held, s.HeldWhy, s.Probes, s.LastProbe, s.Successes
	b.window.failed, b.heard = s.Failures, s.Heard

	for _, k := range s.Buckets {
		if b.window.buckets != nil && k.Index >= 0 {
			b.window.buckets[k.Index%buckets] = k
		}
	}

	return b, nil
}

// check returns an error for a row that no breaker has written.
func (s *stored) check() error {
	if err := s.Config.Validate(); err != nil {
		return err
	}
	full := s.Config.WithDefaults()

	switch {
	case s.State > HalfOpen:
		return fmt.Errorf("%v", s.State)
	case s.Generation < 1 || s.LastProbe < 0 || s.Successes < 0:
		return fmt.Errorf("generation %d, last probe %d, %d successes", s.Generation, s.LastProbe, s.Successes)
	case len(s.Failures) > full.Failures:
		return fmt.Errorf("%d failures of %d", len(s.Failures), full.Failures)
	case len(s.Buckets) > buckets:
		return fmt.Errorf("%d buckets", len(s.Buckets))
	case len(s.Heard) > maxHeard:
		return fmt.Errorf("%d places", len(s.Heard))
	case len(s.Probes) > MaxProbes:
		return fmt.Errorf("%d probes", len(s.Probes))
	}

	return nil
}
