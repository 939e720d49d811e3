// Package helper is used by workflow code of another package. It does not know Perdure itself.
package helper

import (
	"os"
	"strings"
	"time"
)

// Level changes.
var Level = 1

// SetLevel changes it.
func SetLevel(n int) { Level = n }

// Stamp reads the clock.
func Stamp() string { return time.Now().String() }

// Label does it through another function.
func Label() string { return strings.ToUpper(Stamp()) }

// Config reads a file.
type Config struct{}

// Load reads a file.
func (*Config) Load(name string) string { b, _ := os.ReadFile(name); return string(b) }

// Pure computes.
func Pure(s string) string { return strings.ToLower(s) }

// Counter counts.
type Counter struct{ n int }

// Next changes it.
func (c *Counter) Next() int { c.n++; return c.n }

// Nap sleeps.
func Nap() { time.Sleep(time.Millisecond) }
