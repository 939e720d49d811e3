//go:build !unix

package host

// probe knows nothing: there is no /proc here either.
func probe(int) error { return nil }
