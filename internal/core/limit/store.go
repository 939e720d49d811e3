package limit

import (
	"github.com/fxamacker/cbor/v2"

	"github.com/perdure/perdure/internal/fault"
)

// version is the version of the stored forms. A build refuses a version that it does not know,
// because it could lose a part of the row when it writes the row back.
const version = 1

// storedOwner is the row of an owner.
type storedOwner struct {
	Version int     `cbor:"1,keyasint"`
	Numbers Numbers `cbor:"2,keyasint"`
	Leases  []lease `cbor:"3,keyasint,omitempty"`
	Bucket  bucket  `cbor:"4,keyasint"`
	Asked   int64   `cbor:"5,keyasint,omitempty"`
}

// Encode returns the stored form.
func (o *Owner) Encode() ([]byte, error) {
	return cbor.Marshal(storedOwner{version, o.numbers, o.leases, o.bucket, o.asked})
}

// DecodeOwner reads the stored form.
func DecodeOwner(row []byte) (*Owner, error) {
	var s storedOwner
	if err := unmarshal(row, &s, func() int { return s.Version }); err != nil {
		return nil, err
	}

	// The owner may not have its numbers yet. An owner without numbers leases nothing.
	if err := s.Numbers.Validate(); err != nil && s.Numbers != (Numbers{}) {
		return nil, fault.New(fault.Corrupt, "limit: %w", err)
	}
	o := &Owner{numbers: s.Numbers, leases: s.Leases, bucket: s.Bucket, asked: s.Asked}
	if s.Bucket.Level < 0 || s.Bucket.Level > MaxRate*MaxPer.Microseconds() || s.Bucket.At < 0 {
		return nil, fault.New(fault.Corrupt, "limit: level %d at %d", s.Bucket.Level, s.Bucket.At)
	}

	for i, p := range s.Leases {
		// A lease has at most as many permits as the limit allowed at the time, so the highest
		// possible limit bounds it.
		if p.Permits < 0 || p.Tokens < 0 || p.Want < 0 || p.WantTokens < 0 || p.Permits > MaxConcurrency || p.Tokens > MaxRate || p.Recalled.bad(p.Permits) ||
			p.Over < 0 || p.Over > MaxConcurrency || i > 0 && s.Leases[i-1].Place >= p.Place {
			return nil, fault.New(fault.Corrupt, "limit: lease %+v", p)
		}
		o.leased += p.Permits
		o.out += p.Tokens
		o.over += p.Over
	}

	return o, nil
}

// bad reports whether the recalls do not fit a number of permits.
func (r *recalls) bad(permits int) bool {
	return r.Cut < 0 || r.Turn < 0 || r.Spare < 0 || r.Cut > permits || r.Turn > permits || r.Spare > permits || r.Cut+r.Turn+r.Spare > permits
}

// IsZero reports whether nothing is recalled.
func (r recalls) IsZero() bool { return r == recalls{} }

// unmarshal decodes a row and checks its version.
func unmarshal(row []byte, into any, stored func() int) error {
	if err := cbor.Unmarshal(row, into); err != nil {
		return fault.New(fault.Corrupt, "limit: %w", err)
	}
	if v := stored(); v != version {
		return fault.New(fault.Corrupt, "limit: stored by version %d, this build knows version %d", v, version)
	}
	return nil
}
