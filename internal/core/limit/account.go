package limit

import "slices"

// Account is what a place knows about its lease. It is for places that read the owner from the
// store instead of receiving messages. When the owner has received a message of the place, the
// place applies that message to its account as well. Then it compares the account with its lease in
// the store. The difference is what the owner has granted and recalled since the last comparison,
// however many changes the place has missed.
//
// The zero Account belongs to a place without a lease.
type Account struct{ lease lease }

// TakeBack notes that the owner has received a message of the place.
func (a *Account) TakeBack(m ToOwner) { a.lease.takeBack(&m) }

// Look compares the account with the lease of the place in o, and returns what is new.
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

// Beliefs returns what the owner believes about the place: how many permits and tokens the place
// wants, and how many of its tasks hold the resource without a permit.
func (a *Account) Beliefs() (want int, tokens int64, over int) {
	return a.lease.Want, a.lease.WantTokens, a.lease.Over
}

// WantsTokens reports whether the place waits for tokens.
func (a *Account) WantsTokens() bool { return a.lease.WantTokens > 0 }

// IsZero reports whether there is no lease.
func (a *Account) IsZero() bool {
	return a.lease.Permits == 0 && a.lease.Tokens == 0 && a.lease.Over == 0 && !a.lease.isWaiting()
}
