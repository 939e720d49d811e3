//go:build !linux && !darwin

package sqlite

// networkFileSystem names the network file system of a directory. Here it cannot be told.
func networkFileSystem(string) string { return "" }
