package limit

import (
	"github.com/fxamacker/cbor/v2"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// version of the stored forms. A build refuses what it does not know, rather than to forget a part of it.
const version = 1

// storedOwner is an owner as its row has it.
type storedOwner struct {
	Version int     `cbor:"1,keyasint"`
	Numbers Numbers `cbor:"2,keyasint"`
	Leases  []lease `cbor:"3,keyasint,omitempty"`
	Bucket  bucket  `cbor:"4,keyasint"`
	Asked   int64   `cbor:"5,keyasint,omitempty"`
}

// Encode is the stored form.
func (o *Owner) Encode() ([]byte, error) {
	return cbor.Marshal(storedOwner{version, o.numbers, o.leases, o.bucket, o.asked})
}

// DecodeOwner reads the stored form.
func DecodeOwner(row []byte) (*Owner, error) {
	var s storedOwner
	if err := unmarshal(row, &s, func() int { return s.Version }); err != nil {
		return nil, err
	}
	// An owner may not have heard of the rule yet, and lease nothing.
	if err := s.Numbers.Validate(); err != nil && s.Numbers != (Numbers{}) {
		return nil, fault.New(fault.Corrupt, "limit: %w", err)
	}
	o := &Owner{numbers: s.Numbers, leases: s.Leases, bucket: s.Bucket, asked: s.Asked}
	if s.Bucket.Level < 0 || s.Bucket.Level > MaxRate*MaxPer.Microseconds() || s.Bucket.At < 0 {
		return nil, fault.New(fault.Corrupt, "limit: level %d at %d", s.Bucket.Level, s.Bucket.At)
	}
	for i, p := range s.Leases {
		// Permits are leased up to the limit of the time, so the sum of all of them is bounded by the highest there can be.
		if p.Permits < 0 || p.Tokens < 0 || p.Want < 0 || p.WantTokens < 0 || p.Permits > MaxConcurrency || p.Tokens > MaxRate || p.Recalled.bad(p.Permits) ||
			i > 0 && s.Leases[i-1].Place >= p.Place {
			return nil, fault.New(fault.Corrupt, "limit: lease %+v", p)
		}
		o.leased += p.Permits
		o.out += p.Tokens
	}
	return o, nil
}

// storedLocal is what outlives a process of a local: what is leased, and what is under way. Holders are found in the histories of their tasks.
type storedLocal struct {
	Version    int     `cbor:"1,keyasint"`
	Numbers    Numbers `cbor:"2,keyasint"`
	Block      int     `cbor:"3,keyasint,omitempty"`
	Tokens     int64   `cbor:"4,keyasint,omitempty"`
	Recalled   recalls `cbor:"5,keyasint,omitzero"`
	Want       int64   `cbor:"6,keyasint,omitempty"`
	WantTokens int64   `cbor:"7,keyasint,omitempty"`
	Spent      int64   `cbor:"8,keyasint,omitempty"`
}

// Encode is the stored form. It is to be written in the commit that writes what Tell says, and after Receive.
func (l *Local) Encode() ([]byte, error) {
	if l.back > 0 || l.backTokens > 0 {
		return nil, fault.New(fault.Internal, "limit: %d permits and %d tokens were given back and not told", l.back, l.backTokens)
	}
	return cbor.Marshal(storedLocal{version, l.numbers, l.block, l.tokens, l.recalled, l.want, l.wantTokens, l.spent})
}

// DecodeLocal reads the stored form. Hold makes those holders again that are found; Tell then says what is missing or not needed any more.
func DecodeLocal(row []byte) (*Local, error) {
	var s storedLocal
	if err := unmarshal(row, &s, func() int { return s.Version }); err != nil {
		return nil, err
	}
	if s.Block < 0 || s.Tokens < 0 || s.Want < 0 || s.WantTokens < 0 || s.Spent < 0 || s.Recalled.bad(s.Block) {
		return nil, fault.New(fault.Corrupt, "limit: block %+v", s)
	}
	return &Local{
		numbers: s.Numbers, block: s.Block, tokens: s.Tokens, recalled: s.Recalled, want: s.Want, wantTokens: s.WantTokens, spent: s.Spent,
		holders: map[model.TaskRef]struct{}{},
	}, nil
}

func (r *recalls) bad(permits int) bool {
	return r.Cut < 0 || r.Turn < 0 || r.Spare < 0 || r.Cut > permits || r.Turn > permits || r.Spare > permits || r.Cut+r.Turn+r.Spare > permits
}

// IsZero reports whether nothing is recalled.
func (r recalls) IsZero() bool { return r == recalls{} }

func unmarshal(row []byte, into any, stored func() int) error {
	if err := cbor.Unmarshal(row, into); err != nil {
		return fault.New(fault.Corrupt, "limit: %w", err)
	}
	if v := stored(); v != version {
		return fault.New(fault.Corrupt, "limit: stored by version %d, this build knows version %d", v, version)
	}
	return nil
}
