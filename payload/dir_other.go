//go:build !unix

package payload

// syncFolder does nothing: a folder cannot be opened for that here, and the file system keeps names
// in its journal.
func syncFolder(string) error { return nil }
