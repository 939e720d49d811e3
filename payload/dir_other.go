//go:build !unix

package payload

// syncFolder does nothing. On this system a program cannot open a folder to sync it, and the file
// system itself makes names durable with its journal.
func syncFolder(string) error { return nil }
