// Package embedded opens a node in this process.
package embedded

import (
	"context"

	"github.com/perdure/perdure"
)

// Open opens a node on a store URL and serves the definitions.
func Open(ctx context.Context, url string, defs ...perdure.Definition) (*perdure.App, error) {
	return &perdure.App{}, nil
}

// MustOpen is Open for main functions and examples; it panics.
func MustOpen(url string, defs ...perdure.Definition) *perdure.App { return &perdure.App{} }

// Config is Open with settings, as net.Dialer is to net.Dial.
type Config struct{ Schema string }

// Open opens a node with these settings.
func (c Config) Open(ctx context.Context, url string, defs ...perdure.Definition) (*perdure.App, error) {
	return &perdure.App{}, nil
}
