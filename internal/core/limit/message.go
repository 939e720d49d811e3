package limit

// Place names who hands out leased permits to tasks: the incarnation of a node, by its epoch, which
// is used once.
type Place int64

// ToOwner is what a place tells the owner of a resource.
type ToOwner struct {
	// Want and WantTokens are how many more it could use; they replace what it has told before,
	// less what it was granted since.
	Want       int   `cbor:"1,keyasint,omitempty"`
	WantTokens int64 `cbor:"2,keyasint,omitempty"`
	// Permits and Tokens are given back. Spent tokens are gone.
	Permits int   `cbor:"3,keyasint,omitempty"`
	Tokens  int64 `cbor:"4,keyasint,omitempty"`
	Spent   int64 `cbor:"5,keyasint,omitempty"`
	// Over is how many hold it beyond the block, because they were found (Hold); it replaces what
	// was told before, less what was granted since.
	Over int `cbor:"6,keyasint,omitempty"`
}

// ToPlace is what the owner tells a place.
type ToPlace struct {
	// Permits and Tokens are granted.
	Permits int   `cbor:"1,keyasint,omitempty"`
	Tokens  int64 `cbor:"2,keyasint,omitempty"`
	// Cut, Turn and Spare are permits that are wanted back; see the package.
	Cut   int `cbor:"3,keyasint,omitempty"`
	Turn  int `cbor:"4,keyasint,omitempty"`
	Spare int `cbor:"5,keyasint,omitempty"`
}

// Send is a message for a place.
type Send struct {
	To Place
	ToPlace
}

// recalls are permits that are wanted back. Both ends count them alike: what is given back, for
// whatever reason, answers them in this order, and there are never more than permits.
type recalls struct {
	Cut   int `cbor:"1,keyasint,omitempty"`
	Turn  int `cbor:"2,keyasint,omitempty"`
	Spare int `cbor:"3,keyasint,omitempty"`
}

// answered takes n away.
func (r *recalls) answered(n int) {
	for _, k := range [...]*int{&r.Cut, &r.Turn, &r.Spare} {
		d := min(*k, n)
		*k -= d
		n -= d
	}
}

// atMost forgets what exceeds the permits; the least urgent first.
func (r *recalls) atMost(permits int) {
	r.Cut = min(r.Cut, permits)
	r.Turn = min(r.Turn, permits-r.Cut)
	r.Spare = min(r.Spare, permits-r.Cut-r.Turn)
}
