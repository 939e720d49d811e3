package limit

// Place is the id of an incarnation of a node to which an owner leases permits. The id is the epoch
// of the incarnation, so no other incarnation has the same id.
type Place int64

// ToOwner is a message of a place to the owner of a resource.
type ToOwner struct {
	// Want and WantTokens are how many more permits and tokens the place could use. They replace
	// the numbers of earlier messages. The owner subtracts what it grants.
	Want       int   `cbor:"1,keyasint,omitempty"`
	WantTokens int64 `cbor:"2,keyasint,omitempty"`
	// Permits and Tokens are what the place gives back. Spent is how many tokens its tasks have
	// used up.
	Permits int   `cbor:"3,keyasint,omitempty"`
	Tokens  int64 `cbor:"4,keyasint,omitempty"`
	Spent   int64 `cbor:"5,keyasint,omitempty"`
	// Over is how many tasks hold the resource without a permit, because the place found them
	// already running (see Local.Hold). It replaces the number of earlier messages. The owner
	// subtracts what it grants.
	Over int `cbor:"6,keyasint,omitempty"`
}

// ToPlace is a message of the owner to a place.
type ToPlace struct {
	// Permits and Tokens are what the owner grants.
	Permits int   `cbor:"1,keyasint,omitempty"`
	Tokens  int64 `cbor:"2,keyasint,omitempty"`
	// Cut, Turn and Spare are permits to give back; see the package comment.
	Cut   int `cbor:"3,keyasint,omitempty"`
	Turn  int `cbor:"4,keyasint,omitempty"`
	Spare int `cbor:"5,keyasint,omitempty"`
}

// Send is a message with the place that it goes to.
type Send struct {
	To Place
	ToPlace
}

// recalls counts permits that the owner wants back. Owner and place count in the same way: a permit
// that the place gives back, for whatever reason, reduces the cut first, then the turn, then the
// spare. The owner never recalls more permits than the place has.
type recalls struct {
	Cut   int `cbor:"1,keyasint,omitempty"`
	Turn  int `cbor:"2,keyasint,omitempty"`
	Spare int `cbor:"3,keyasint,omitempty"`
}

// answer subtracts n permits that were given back.
func (r *recalls) answer(n int) {
	for _, k := range [...]*int{&r.Cut, &r.Turn, &r.Spare} {
		d := min(*k, n)
		*k -= d
		n -= d
	}
}

// atMost drops recalls that exceed the permits, the least urgent first.
func (r *recalls) atMost(permits int) {
	r.Cut = min(r.Cut, permits)
	r.Turn = min(r.Turn, permits-r.Cut)
	r.Spare = min(r.Spare, permits-r.Cut-r.Turn)
}
