//go:build !unix

package host

// probe proves nothing, because there is no /proc here either.
func probe(int) error { return nil }
