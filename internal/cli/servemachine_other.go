//go:build !unix

package cli

// openFileLimit returns how many files this process may have open. This system has no such limit.
func openFileLimit() (uint64, bool) { return 0, false }
