//go:build !linux

package bench

import "os"

func syncData(file *os.File) error { return file.Sync() }
