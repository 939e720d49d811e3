package limit

import "slices"

// Account is what a place knows of its lease, for places that read what the owner has written
// instead of being sent messages. Everything that the owner does with the lease follows from two
// things: what the place has told, and what the lease says afterwards; so whoever knows how far the
// owner has heard it finds out what it was granted and asked for, however many changes it has
// missed.
//
// The zero Account is that of a place without a lease.
type Account struct{ lease lease }

// Told tells that the owner has received a message of the place.
func (a *Account) Told(m ToOwner) { a.lease.returns(&m) }

// Look compares with the lease of the place, and returns what is new.
func (a *Account) Look(o *Owner, place Place) (m ToPlace) {
	var now lease
	if o != nil {
		if i, found := slices.BinarySearchFunc(o.leases, place, byPlace); found {
			now = o.leases[i]
		}
	}
	was := &a.lease
	m = ToPlace{
		Permits: now.Permits - was.Permits, Tokens: now.Tokens - was.Tokens,
		Cut:   max(now.Recalled.Cut-was.Recalled.Cut, 0),
		Turn:  max(now.Recalled.Turn-was.Recalled.Turn, 0),
		Spare: max(now.Recalled.Spare-was.Recalled.Spare, 0),
	}
	a.lease = now
	return m
}

// Believed is what the owner believes that the place wants, and holds without a permit.
func (a *Account) Believed() (want int, tokens int64, over int) {
	return a.lease.Want, a.lease.WantTokens, a.lease.Over
}

// WantsTokens reports whether the place waits for tokens.
func (a *Account) WantsTokens() bool { return a.lease.WantTokens > 0 }

// IsZero reports whether there is no lease.
func (a *Account) IsZero() bool {
	return a.lease.Permits == 0 && a.lease.Tokens == 0 && a.lease.Over == 0 && !a.lease.wants()
}
