//go:build !linux && !darwin

package sqlite

// networkFileSystem names the network file system of a directory. It cannot find out here.
func networkFileSystem(string) string { return "" }
